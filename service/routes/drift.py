"""Drift: the words of a model, and the result of each cohort."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.figures.drift import draw_drift
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.recommendations import Recommendation
from calibrant_server.service.reads.service import JSON
from calibrant_server.service.reads.table_formats import or_table, table_type
from calibrant_server.service.reads.tables import COHORTS, cohort_rows, rendered
from calibrant_server.workers.queries.kinds.drift import EVIDENCE, DriftQuery
from calibrant_server.workers.queries.kinds.drift_history import DriftHistoryQuery

router = APIRouter(tags=["drift"], default_response_class=Response)


class HistoryParameters(ClockQuery, DriftHistoryQuery):
    """Which detector, over which window."""


class DriftParameters(ClockQuery, DriftQuery):
    """Which detector, and as which media type."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class CalibrationWord(BaseModel):
    """Calibration compared with the tolerance."""

    word: Literal["good", "off", "unknown"]
    sentence: str
    value: float | None = Field(
        description="The limit that decides: if `off` the lower limit of the error, else its upper limit."
    )
    allowed: float = Field(description="The tolerance.")
    error: float | None = Field(description="Calibration error of the recent cohorts.")
    expected_at_most: float | None = Field(
        description="Error that a calibrated model with the same data exceeds in one of 20 cases."
    )
    n: float = Field(description="Labelled units of the recent cohorts.")
    n_more: int | None = Field(description="Further labelled units that would decide.")
    coverage: float | None = Field(description="Labelled share of the predictions.")
    coverage_fell: bool = Field(description="Whether the labelled share fell by 20 points.")
    bounds: list[float] | None = Field(
        description="The error if all unlabelled predictions had the least or the most favourable labels; "
        "null if nearly all have labels."
    )
    since: str | None = Field(description="The cohort at which the word turned.")


class ChangeWord(BaseModel):
    """The model compared with its own past."""

    word: Literal["none_seen", "changed", "not_armed", "no_recent_predictions", "no_recent_labels"]
    sentence: str
    n: float = Field(description="Labelled units since the change, or of all cohorts compared.")
    smallest_change: float | None = Field(
        description="Smallest change of the rate of labels, in [0, 1], that would show within 7 cohorts."
    )
    start: str | None = Field(description="The first cohort of the change.")
    earliest: str | None
    latest: str | None
    armed_at: str | None = Field(description="From when a change of 5 points would show.")
    acknowledged_at: str | None


class ScoresWord(BaseModel):
    """The distribution of the scores, labelled or not."""

    word: Literal["shifted", "none_seen", "unknown"]
    sentence: str
    value: float | None = Field(description="Population stability index.")
    limit: float | None


class DriftResponse(BaseModel):
    """The two words, the scores, the size of a change and what to do; with `include=evidence` what they depend on."""

    model_config = ConfigDict(extra="allow")

    status: Literal["insufficient_data", "ok", "watch", "alarm"] = Field(
        description="Derived from the words."
    )
    calibration: CalibrationWord
    change: ChangeWord
    scores: ScoresWord
    effect: dict[str, Any] | None = Field(
        description="Accuracy, mean confidence and temperature before and after an open change."
    )
    title: str | None = Field(
        description="Subject of an alarm: model drift, rater shift with the raters, or calibration drift.",
    )
    alarm: str | None = Field(description="Id of the alarm.")
    map_version: str | None = Field(description="The active calibration map.")
    recommendation: Recommendation
    recent: list[dict[str, Any]] | None = Field(
        None,
        description="The last 120 cohorts: −log10 of the p-value of a change, with that of its level.",
    )
    bins: list[dict[str, Any]] | None = None
    bins_since_change: list[dict[str, Any]] | None = None
    raters: list[dict[str, Any]] | None = Field(
        None, description="Named raters with a detector of their own."
    )
    rater_or_model: dict[str, Any] | None = Field(
        None, description="Whether the model or its raters changed, if raters are named."
    )
    units: dict[str, Any] | None = Field(
        None,
        description="Units in several cohorts: `first_contacts_only`, with the number left out; or `units_unknown`: no false-alarm rate is claimed.",
    )
    detector: dict[str, Any] | None = None
    detector_reason: str | None = None
    slices: list[dict[str, Any]] | None = Field(
        None, description="The other detectors, flagged ones first."
    )


class CohortRow(BaseModel):
    """Evidence of one sealed cohort."""

    cohort: dict[str, str]
    evidence_log10: float = Field(description="−log10 of the p-value of a change for the worse.")
    threshold_log10: float = Field(description="−log10 of the level.")
    over_threshold: bool
    n_units: float
    mean_confidence: float | None
    accuracy: float | None
    n_predictions: int
    n_labelled: int


class DriftHistory(BaseModel):
    """Cohorts, oldest first."""

    model_config = ConfigDict(extra="allow")

    bucket: str
    kept_cohorts: int = Field(description="Number of the latest cohorts that are stored.")
    cohorts: list[CohortRow]


VERDICT = success(
    DriftResponse,
    "The words with their sentences, or a figure",
    ETag="Changes with the state and the query.",
)


@router.get("/v1/models/{model}/drift", operation_id="getDrift", responses=or_drawn(VERDICT))
async def get_drift(read: TheReadAccess, query: Annotated[DriftParameters, Query()]) -> Response:
    """Return whether the model is calibrated and whether it changed, each in a word and a sentence; as JSON, SVG or PNG."""
    if read.is_drawn(query.format):
        query = query.model_copy(update={"include": EVIDENCE})
    return await read.respond(await read.read_query(query), query.format, draw_drift)


@router.get(
    "/v1/models/{model}/drift/history",
    operation_id="listDriftHistory",
    responses={
        200: or_table(
            success(
                DriftHistory,
                "The cohorts of the window",
                ETag="Changes with the state and the query.",
            )
        ),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def list_drift_history(
    read: TheReadAccess, query: Annotated[HistoryParameters, Query()]
) -> Response:
    """Return the evidence of a change after each sealed cohort of the window; as JSON or as a table."""
    table = table_type(read.request, [JSON])
    render = None if table is None else rendered(table, COHORTS, cohort_rows)
    return await read.reads.respond(read.request, await read.read_query(query), table, render)
