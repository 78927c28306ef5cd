"""Predictions with their labels: columns in, a receipt out."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response

from calibrant.batch import Batch, Checked
from calibrant.errors import CalibrationInputError, Offence
from service.arrivals import TheArrival
from service.bodies import Body
from service.columns import Posted, read_columns
from service.document import answers, problems, takes
from service.posted import PredictionRecord, PredictionsBody, checked_batch, refuse_too_many
from service.reception import Circumstances, IngestAnswer, IngestQuery, Load, Sender, digest_of_all
from service.rules import refuse_unitless, without_undeclared
from workers.state.registry import ModelConfig
from workers.windows import panes_of

router = APIRouter(tags=["ingest"], default_response_class=Response)


@router.post(
    "/v1/models/{model}/predictions",
    operation_id="ingestPredictions",
    status_code=202,
    responses={
        200: answers(IngestAnswer, "The batch is merged", Preference_Applied="wait=S"),
        202: answers(IngestAnswer, "The batch is accepted", Location="The batch."),
        **problems(408, 409, 413, 415, 422, 429),
    },
    openapi_extra=takes("Predictions", json=PredictionsBody, ndjson=PredictionRecord),
)
async def ingest_predictions(arrival: TheArrival, query: Annotated[IngestQuery, Query()]) -> Response:
    """Take a batch of predictions with their labels."""
    return await arrival.take(query.partial, load_predictions)


def load_predictions(body: Body, given: Circumstances) -> Load:
    """Return the batch that a body holds, or raise every rule that it breaks."""
    posted = read_columns(body, given.settings)
    checked = checked_batch(posted, given.config, given.partial)
    checked = refuse_unlabelled(checked, posted, given.partial)
    if given.config is not None:
        checked = _by_the_models_rules(checked, posted, given.config, given.partial)
    offences = [posted.place(offence) for offence in checked.offences]
    refuse_too_many(checked.batch.n, offences)
    config = given.config or config_for(checked.batch, given.sender)
    _check_panes(checked, config, posted, given)
    batch = checked.batch
    return Load(
        config,
        "predictions",
        batch.pack(),
        digest_of_all(batch.digest(), posted.rows_but(checked.accepted_rows.tolist())),
        batch.n,
        offences,
        posted.batch_id,
        batch.ids is not None,
        None if batch.ids is None else posted.places(checked.accepted_rows.tolist()),
    )


def refuse_unlabelled(checked: Checked, posted: Posted, partial: bool) -> Checked:
    """Return what has labels, or ids by which labels can come; a row with neither is an offence."""
    missing = checked.batch.row_total == 0
    if checked.batch.ids is not None or not missing.any():
        return checked
    column = "label_counts" if "label_counts" in posted.columns else "labels"
    detail = "the row has no label; send labels, or ids by which labels can come later"
    offences = [
        Offence(f"/{column}/{row}", "labels_required", detail)
        for row in checked.accepted_rows[missing]
    ]
    if not partial:
        raise CalibrationInputError([posted.place(offence) for offence in offences])
    kept = np.flatnonzero(~missing)
    return Checked(
        checked.batch.take(kept), checked.offences + offences, checked.accepted_rows[kept]
    )


def _by_the_models_rules(
    checked: Checked, posted: Posted, config: ModelConfig, partial: bool
) -> Checked:
    """Return the rows that the model takes; a model that a first batch makes has no rules yet."""
    try:
        refuse_unitless(checked, config)
        return without_undeclared(checked, config, partial)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.offences]) from error


def config_for(batch: Batch, sender: Sender) -> ModelConfig:
    """Return the model that a first batch makes: its task and classes, everything else by default."""
    config = ModelConfig(sender.caller.tenant, sender.model, batch.task, batch.n_classes)
    try:
        config.spec()
    except CalibrationInputError as error:
        column = "logits" if batch.is_logits else "probabilities"
        raise CalibrationInputError.at(f"/{column}", "n_classes", error.offences[0].detail) from error
    return config


def _check_panes(
    checked: Checked, config: ModelConfig, posted: Posted, given: Circumstances
) -> None:
    try:
        panes_of(checked.batch, config, given.received_at, given.limits)
    except CalibrationInputError as error:
        sent = [_as_sent(offence, checked) for offence in error.offences]
        raise CalibrationInputError([posted.place(offence) for offence in sent]) from error


def _as_sent(offence: Offence, checked: Checked) -> Offence:
    """Return an offence of an accepted row under the number that the row had when it was sent."""
    head, _, row = offence.pointer.rpartition("/")
    if not row.isdigit():
        return offence
    return Offence(f"{head}/{checked.accepted_rows[int(row)]}", offence.rule, offence.detail)
