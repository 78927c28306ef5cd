"""Predictions with their labels: columns in, a receipt out."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.batch import Batch, Checked
from calibrant.errors import CalibrationInputError, Offence
from service.bodies import Body
from service.columns import Posted, read_columns
from service.dependencies import IdempotencyKey, Ingester, Prefer, TheReception
from service.names import ModelId
from service.openapi import answers, problems, takes
from service.reception import Circumstances, IngestAnswer, IngestQuery, Load, Sender
from workers.state.registry import ModelConfig
from workers.windows import panes_of

router = APIRouter(tags=["ingest"], default_response_class=Response)

Label = int | str | list[int | str] | None
NAME = r"^[A-Za-z0-9._:@-]{1,128}$"
Name = Annotated[str, Field(pattern=NAME)]


class PredictionsBody(BaseModel):
    """A batch as columns of one length; one of probabilities, logits, confidences is required."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    probabilities: list[list[float]] | None = Field(
        None, description="A row a prediction, one value a class; rows sum to 1 within 1e-3."
    )
    logits: list[list[float]] | None = Field(None, description="Finite; their softmax is scored.")
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    labels: list[Label] | None = Field(
        None, description="A class index, or a list with one class index a rater."
    )
    label_counts: list[list[int]] | None = Field(None, description="Votes by class.")
    ids: list[Name] | None = None
    units: list[Name] | None = Field(None, description="What is independent: patient, item.")
    cases: list[Name] | None = Field(None, description="The image or study of a pixel.")
    event_times: list[str] | None = Field(None, description="RFC 3339.")
    slices: dict[str, list[str]] | None = Field(None, description="One list a slice name.")
    weights: list[float] | None = None


class PredictionRecord(BaseModel):
    """One line of NDJSON: one prediction. `batch_id` may stand alone in the first line."""

    model_config = ConfigDict(extra="forbid")

    probability: list[float] | None = None
    logit: list[float] | None = None
    confidence: float | None = None
    label: Label = None
    label_count: list[int] | None = None
    id: Name | None = None
    unit: Name | None = None
    case: Name | None = None
    event_time: str | None = None
    slice: dict[str, str] | None = None
    weight: float | None = None


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
async def ingest_predictions(
    model: ModelId,
    request: Request,
    caller: Ingester,
    query: Annotated[IngestQuery, Query()],
    reception: TheReception,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Take a batch of predictions with their labels."""
    return await reception.take(request, Sender(caller, model), query.partial, load_predictions)


def load_predictions(body: Body, given: Circumstances) -> Load:
    """Return the batch that a body holds, or raise every rule that it breaks."""
    posted = read_columns(body, given.settings)
    checked = checked_batch(posted, given.config, given.partial)
    checked = refuse_unlabelled(checked, posted, given.partial)
    offences = [posted.place(offence) for offence in checked.offences]
    refuse_too_many(checked.batch.n, offences, given.settings.max_row_errors)
    config = given.config or config_for(checked.batch, given.sender)
    _check_panes(checked, config, posted, given)
    batch = checked.batch
    return Load(
        config, "predictions", batch.pack(), batch.digest(), batch.n, offences, posted.batch_id
    )


def checked_batch(posted: Posted, config: ModelConfig | None, partial: bool) -> Checked:
    """Return the meaning of posted columns, as the model understands them."""
    expected: dict[str, Any] = {}
    if config is not None:
        expected = {
            "task": config.task,
            "n_classes": config.n_classes,
            "class_names": config.classes,
        }
    try:
        return Batch.from_columns(posted.columns, partial=partial, **expected)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.offences]) from error


def refuse_unlabelled(checked: Checked, posted: Posted, partial: bool) -> Checked:
    """Return what has labels; a row without is an offence, for late labels are not taken yet."""
    missing = checked.batch.row_total == 0
    if not missing.any():
        return checked
    column = "label_counts" if "label_counts" in posted.columns else "labels"
    detail = "the row has no label; labels are needed with their predictions"
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


def refuse_too_many(n_accepted: int, offences: list[Offence], limit: int) -> None:
    """Refuse a partial batch of which nothing is left, or too much is wrong to be listed."""
    if offences and (n_accepted == 0 or len(offences) > limit):
        raise CalibrationInputError(offences)


def config_for(batch: Batch, sender: Sender) -> ModelConfig:
    """Return the model that a first batch makes: its task and classes, everything else by default."""
    return ModelConfig(sender.caller.tenant, sender.model, batch.task, batch.n_classes)


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
