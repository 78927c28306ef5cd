"""One posted batch scored at once: nothing is stored, and the raw rows allow more than the state does."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.batch import Checked
from calibrant.errors import CalibrationInputError, Offence
from calibrant.labels import named_raters
from calibrant.score import score_batch
from service.bodies import Body, read_body
from service.columns import Posted, read_columns
from service.dependencies import AppSettings, Scorer, TheReception
from service.document import ProblemError, answers, problems, takes
from service.estimates import Estimates, TemperatureAnswer, metric_slugs
from service.posted import Name, PredictionRecord, PredictionsBody, checked_batch, refuse_too_many
from service.queries import Edges, MetricBinning, OptionsQuery, Raters, invalid_query
from service.settings import Settings
from service.threads import aside

router = APIRouter(tags=["score"], default_response_class=Response)


class ScoreQuery(OptionsQuery):
    """What is computed of the batch."""

    model_config = ConfigDict(extra="forbid")

    metrics: str | None = Field(None, max_length=4000, description="Slugs with commas between.")
    bins: int = Field(15, ge=1, le=100_000, description="Any number: the raw rows are here.")
    binning: MetricBinning = "equal_width"
    edges: Edges = "right"
    raters: Raters = "pooled"
    min_count: float = Field(0, ge=0, le=1e15, allow_inf_nan=False)
    scope: str | None = Field(None, max_length=200)
    objective: Literal["nll", "brier", "ece"] = "nll"
    ci: float = Field(0.95, gt=0, lt=1)
    partial: bool = Field(False, description="Score the good rows and answer the bad ones.")


class ScoredBody(PredictionsBody):
    """A batch with labels, and who gave them."""

    raters: list[Name | list[Name | None] | None] | None = Field(
        None, description="Who rated, in the order of `labels`: each named rater is scored by himself too."
    )


class ScoredRecord(PredictionRecord):
    """One line of NDJSON: one prediction with its labels, and who gave them."""

    rater: Name | list[Name | None] | None = None


class Baselines(BaseModel):
    """Each metric under every label policy and of each named rater alone."""

    disagreement: float | None = Field(description="Share of pairs of ratings that differ.")
    n_majority_ties: int
    metrics: dict[str, dict[str, Any]] = Field(
        description="By slug: `policies`, `by_rater` with `value` and `n` of each, `mean_of_raters`."
    )


class ScoreAnswer(BaseModel):
    """Metrics, reliability and temperature of the batch."""

    model_config = ConfigDict(extra="allow")

    n_predictions: int
    n_ratings: int
    metrics: Estimates
    reliability: dict[str, Any]
    temperature: TemperatureAnswer
    baselines: Baselines | None = Field(None, description="Where `raters` names who rated.")
    rejected: int = 0
    errors: list[ProblemError] = []


@router.post(
    "/v1/score",
    operation_id="scoreOnce",
    responses={200: answers(ScoreAnswer, "The scores"), **problems(408, 413, 415, 422)},
    openapi_extra=takes("Predictions", json=ScoredBody, ndjson=ScoredRecord),
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
    posted = read_columns(body, settings, {"rater": "raters"})
    names, plain = posted.columns.get("raters"), dict(posted.columns)
    plain.pop("raters", None)
    posted = replace(posted, columns=plain)
    checked = checked_batch(posted, None, partial)
    offences = [posted.place(offence) for offence in checked.offences]
    refuse_too_many(checked.batch.n, offences, settings.max_row_errors)
    if not checked.batch.row_total.any():
        detail = "no row has a label, and without labels there is nothing to score"
        raise CalibrationInputError([Offence("/labels", "labels_required", detail)])
    raters = _raters(posted, names, checked)
    try:
        scores = score_batch(checked.batch, params, raters)
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    rejected = {"rejected": len(offences), "errors": [vars(offence) for offence in offences]}
    return orjson.dumps({**scores, **rejected}, option=orjson.OPT_SERIALIZE_NUMPY)


def _raters(posted: Posted, names: Any, checked: Checked) -> dict[str, Any] | None:
    """Return the classes of each named rater for the rows that are scored, None where nobody is named."""
    if names is None:
        return None
    try:
        return named_raters(posted.columns.get("labels"), names, checked.batch.n_classes, checked.accepted_rows)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.offences]) from error
