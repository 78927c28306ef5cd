"""One posted batch scored at once: nothing is stored, and the raw rows allow more than the state does."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.errors import CalibrationInputError, Offence
from calibrant.score import score_batch
from service.bodies import Body, read_body
from service.columns import read_columns
from service.dependencies import AppSettings, Scorer, TheReception
from service.document import ProblemError, answers, problems, takes
from service.estimates import Estimates, TemperatureAnswer, metric_slugs
from service.posted import PredictionRecord, PredictionsBody, checked_batch, refuse_too_many
from service.queries import Edges, MetricBinning, OptionsQuery, Raters, invalid_query
from service.settings import Settings
from service.threads import aside

router = APIRouter(tags=["score"], default_response_class=Response)


class ScoreQuery(OptionsQuery):
    """What is computed of the batch."""

    model_config = ConfigDict(extra="forbid")

    metrics: str | None = Field(None, max_length=4000, description="Slugs with commas between.")
    bins: int = Field(15, ge=1, le=16_384, description="Any number: the raw rows are here.")
    binning: MetricBinning = "equal_width"
    edges: Edges = "right"
    raters: Raters = "pooled"
    min_count: float = Field(0, ge=0, le=1e15, allow_inf_nan=False)
    scope: str | None = Field(None, max_length=200)
    objective: Literal["nll", "brier", "ece"] = "nll"
    ci: float = Field(0.95, ge=0.5, lt=1)
    partial: bool = Field(False, description="Score the good rows and answer the bad ones.")


class ScoreAnswer(BaseModel):
    """Metrics, reliability and temperature of the batch."""

    model_config = ConfigDict(extra="allow")

    n_predictions: int
    n_ratings: int
    metrics: Estimates
    reliability: dict[str, Any]
    temperature: TemperatureAnswer
    rejected: int = 0
    errors: list[ProblemError] = []


@router.post(
    "/v1/score",
    operation_id="scoreOnce",
    responses={200: answers(ScoreAnswer, "The scores"), **problems(408, 413, 415, 422)},
    openapi_extra=takes("Predictions", json=PredictionsBody, ndjson=PredictionRecord),
)
async def score_once(
    request: Request,
    caller: Scorer,
    query: Annotated[ScoreQuery, Query()],
    reception: TheReception,
    settings: AppSettings,
) -> Response:
    """Score one posted batch; nothing is stored."""
    params = {**query.model_dump(exclude={"partial"}), "metrics": metric_slugs(query.metrics)}
    with reception.admission.hold() as hold:
        body = await read_body(request, settings, hold)
        answer = await aside(scored, body, params, settings, query.partial)
    return Response(answer, media_type="application/json")


def scored(body: Body, params: dict[str, Any], settings: Settings, partial: bool) -> bytes:
    """Return the scores of the batch in `body` as JSON."""
    posted = read_columns(body, settings)
    checked = checked_batch(posted, None, partial)
    offences = [posted.place(offence) for offence in checked.offences]
    refuse_too_many(checked.batch.n, offences, settings.max_row_errors)
    if not checked.batch.row_total.any():
        detail = "no row has a label, and without labels there is nothing to score"
        raise CalibrationInputError([Offence("/labels", "labels_required", detail)])
    try:
        scores = score_batch(checked.batch, params)
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    rejected = {"rejected": len(offences), "errors": [vars(offence) for offence in offences]}
    return orjson.dumps({**scores, **rejected}, option=orjson.OPT_SERIALIZE_NUMPY)
