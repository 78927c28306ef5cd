"""Predictions with their labels: columns in, a receipt out."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response

from calibrant.core.batch import Batch, Checked
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.bodies import Body
from calibrant_server.service.ingest.columns import ParsedBatch, read_columns
from calibrant_server.service.ingest.dependencies import TheArrival
from calibrant_server.service.ingest.model_rules import refuse_unitless, without_undeclared
from calibrant_server.service.ingest.schemas import (
    PredictionRecord,
    PredictionsBody,
    RecordsBody,
    checked_batch,
    refuse_too_many,
)
from calibrant_server.service.ingest.service import (
    Circumstances,
    IngestQuery,
    IngestResponse,
    PreparedBatch,
    Sender,
    digest_of_all,
)
from calibrant_server.service.openapi.schema import answers, problems, takes
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.windows import panes_of

router = APIRouter(tags=["predictions"], default_response_class=Response)


@router.post(
    "/v1/models/{model}/predictions",
    operation_id="ingestPredictions",
    status_code=202,
    responses={
        200: answers(IngestResponse, "The batch is merged", Preference_Applied="wait=S"),
        202: answers(IngestResponse, "The batch is accepted", Location="The batch."),
        **problems(408, 409, 413, 415, 422, 429),
    },
    openapi_extra=takes(
        "Predictions", json=(PredictionsBody, RecordsBody), ndjson=PredictionRecord
    ),
)
async def ingest_predictions(
    arrival: TheArrival, query: Annotated[IngestQuery, Query()]
) -> Response:
    """Take a batch of predictions, with or without labels.

    The batch is columns of equal length, or a list of records. It is all or nothing unless `partial` is set. The first
    batch of an unknown model creates the model.
    """
    return await arrival.take(query.partial, load_predictions)


def load_predictions(body: Body, given: Circumstances) -> PreparedBatch:
    """Return the batch that a body holds, or raise every rule that it breaks."""
    posted = read_columns(body, given.settings)
    checked = checked_batch(posted, given.config, given.partial)
    checked = refuse_unlabelled(checked, posted, given.partial)
    if given.config is not None:
        checked = _by_the_models_rules(checked, posted, given.config, given.partial)
    violations = [posted.place(violation) for violation in checked.violations]
    refuse_too_many(checked.batch.n, violations)
    config = given.config or config_for(checked.batch, given.sender)
    _check_panes(checked, config, posted, given)
    batch = checked.batch
    return PreparedBatch(
        config,
        "predictions",
        batch.pack(),
        digest_of_all(batch.digest(), posted.rows_but(checked.accepted_rows.tolist())),
        batch.n,
        violations,
        posted.batch_id,
        batch.ids is not None,
        None if batch.ids is None else posted.places(checked.accepted_rows.tolist()),
    )


def refuse_unlabelled(checked: Checked, posted: ParsedBatch, partial: bool) -> Checked:
    """Return what has labels, or ids by which labels can come; a row with neither is a violation."""
    missing = checked.batch.row_total == 0
    if checked.batch.ids is not None or not missing.any():
        return checked
    column = "label_counts" if "label_counts" in posted.columns else "labels"
    detail = "the row has no label; send labels, or ids by which labels can come later"
    violations = [
        Violation(f"/{column}/{row}", "labels_required", detail)
        for row in checked.accepted_rows[missing]
    ]
    if not partial:
        raise CalibrationInputError([posted.place(violation) for violation in violations])
    kept = np.flatnonzero(~missing)
    return Checked(
        checked.batch.take(kept), checked.violations + violations, checked.accepted_rows[kept]
    )


def _by_the_models_rules(
    checked: Checked, posted: ParsedBatch, config: ModelConfig, partial: bool
) -> Checked:
    """Return the rows that the model takes; a model that a first batch makes has no rules yet."""
    try:
        refuse_unitless(checked, config)
        return without_undeclared(checked, config, partial)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.violations]) from error


def config_for(batch: Batch, sender: Sender) -> ModelConfig:
    """Return the model that a first batch makes: its task and classes, everything else by default."""
    config = ModelConfig(sender.caller.tenant, sender.model, batch.task, batch.n_classes)
    try:
        config.spec()
    except CalibrationInputError as error:
        column = "logits" if batch.is_logits else "probabilities"
        raise CalibrationInputError.at(
            f"/{column}", "n_classes", error.violations[0].detail
        ) from error
    return config


def _check_panes(
    checked: Checked, config: ModelConfig, posted: ParsedBatch, given: Circumstances
) -> None:
    try:
        panes_of(checked.batch, config, given.received_at, given.limits)
    except CalibrationInputError as error:
        sent = [_as_sent(violation, checked) for violation in error.violations]
        raise CalibrationInputError([posted.place(violation) for violation in sent]) from error


def _as_sent(violation: Violation, checked: Checked) -> Violation:
    """Return a violation of an accepted row under the number that the row had when it was sent."""
    head, _, row = violation.pointer.rpartition("/")
    if not row.isdigit():
        return violation
    return Violation(f"{head}/{checked.accepted_rows[int(row)]}", violation.rule, violation.detail)
