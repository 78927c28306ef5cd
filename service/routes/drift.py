"""Drift: the verdict of the sequential alarm, and the result of each cohort."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.figures.drift import draw_drift
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.service.reads.recommendations import Recommendation
from calibrant_server.service.reads.service import JSON
from calibrant_server.service.reads.table_formats import or_table, table_type
from calibrant_server.service.reads.tables import COHORTS, cohort_rows, rendered
from calibrant_server.workers.queries.kinds.drift import DriftQuery
from calibrant_server.workers.queries.kinds.drift_history import DriftHistoryQuery

router = APIRouter(tags=["drift"], default_response_class=Response)


class HistoryParameters(ClockQuery, DriftHistoryQuery):
    """Which detector, over which window."""


class DriftParameters(ClockQuery, AgainstQuery, DriftQuery):
    """Which detector, which data the comparison is about, and as which media type."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class DriftResponse(BaseModel):
    """Status, evidence, effect and the assumptions that they depend on."""

    model_config = ConfigDict(extra="allow")

    status: Literal["insufficient_data", "ok", "watch", "alarm"]
    reason: str | None = None
    summary: str | None = Field(None, description="The verdict in sentences.")
    title: str | None = Field(
        None,
        description="Subject of an alarm: model drift, rater shift with the raters, or calibration drift.",
    )
    evidence_log10: float | None = None
    anytime_p: float | None = None
    sr: float | None = None
    threshold: float | None = None
    arl_target: float | None = None
    alarmed_at: dict[str, str] | None = Field(None, description="The cohort that raised the alarm.")
    acknowledged_at: dict[str, str] | None = Field(
        None,
        description="The last cohort at the time of acknowledgement; null if the alarm is not acknowledged.",
    )
    start_of_change: str | None = None
    effect: dict[str, Any] | None = None
    bins: list[dict[str, Any]] = []
    bins_since_change: list[dict[str, Any]] | None = Field(
        None, description="Bins as in `bins`, since the start of the change."
    )
    recent: list[dict[str, Any]] = Field(
        [], description="Evidence and change statistic of the last 120 cohorts."
    )
    coverage: dict[str, Any] | None = Field(
        None,
        description="Labelled share, overall and by bin, its gradient, and delays of labels, as sealed.",
    )
    description: dict[str, Any] | None = Field(
        None,
        description="Calibration error with its null reference, and the decomposed Brier and log scores. These numbers never raise an alarm.",
    )
    labels: dict[str, Any] | None = Field(
        None,
        description="Label policy, raters with their own evidence, agreement, and dropped duplicates.",
    )
    rater_or_model: dict[str, Any] | None = Field(
        None, description="Whether the model or its raters changed, if raters are named."
    )
    scores: str | None = Field(None, description="Scores that the bets use: `mapped` or `raw`.")
    map_version: str | None = Field(None, description="The active calibration map.")
    cohorts_passed_over: dict[str, Any] | None = Field(
        None, description="Number of sealed cohorts that this detector skipped, and the reason."
    )
    units: dict[str, Any] | None = Field(
        None,
        description="Units in several cohorts: `first_contacts_only`, with the number left out; or `units_unknown`: no false-alarm rate is claimed.",
    )
    warnings: list[dict[str, str]] = Field(
        [],
        description="Assumptions that the data contradict: `code` and `detail`. They raise no alarm.",
    )
    dispersion: dict[str, Any] | None = Field(
        None,
        description="Variation between cohorts: `phi` divides a cohort's log evidence, `caution` the log statistic; "
        "`run_in_days`: days left of the run-in.",
    )
    assumptions: list[str] = []
    recommendation: Recommendation
    detector: dict[str, Any] | None = Field(
        description="The detector of this verdict; null before a cohort is sealed."
    )
    detector_reason: str | None = None
    slices: list[dict[str, Any]] = Field([], description="The other detectors, flagged ones first.")
    comparison: dict[str, Any] = Field(
        description="The last days of the window compared with the rest, or with what `against` names."
    )


class CohortRow(BaseModel):
    """Evidence of one sealed cohort."""

    cohort: dict[str, str]
    evidence_log10: float | None
    sr_log10: float | None
    threshold_log10: float
    over_threshold: bool
    n_units: float
    mean_confidence: float | None
    accuracy: float | None
    n_predictions: int
    n_labelled: int
    n_raters: int | None = Field(
        description="Number of named raters in the cohort; null if no rater is named."
    )
    agreement_alpha: float | None = Field(
        description="Krippendorff's alpha over predictions with several ratings."
    )


class DriftHistory(BaseModel):
    """Cohorts, oldest first."""

    model_config = ConfigDict(extra="allow")

    bucket: str
    kept_cohorts: int = Field(description="Number of the latest cohorts that are stored.")
    cohorts: list[CohortRow]


VERDICT = success(
    DriftResponse,
    "The status with its evidence, or a figure",
    ETag="Changes with the state and the query.",
)


@router.get("/v1/models/{model}/drift", operation_id="getDrift", responses=or_drawn(VERDICT))
async def get_drift(read: TheReadAccess, query: Annotated[DriftParameters, Query()]) -> Response:
    """Return whether the model's calibration has drifted, with the evidence; as JSON, SVG or PNG."""
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
    """Return evidence and change statistic after each sealed cohort of the window; as JSON or as a table."""
    table = table_type(read.request, [JSON])
    render = None if table is None else rendered(table, COHORTS, cohort_rows)
    return await read.reads.respond(read.request, await read.read_query(query), table, render)
