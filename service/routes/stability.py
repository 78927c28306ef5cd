"""Stability: variation of a calibration error as data shrink, with its value under every label policy."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.figures.stability import draw_stability
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.stability import StabilityQuery

router = APIRouter(tags=["stability"], default_response_class=Response)


class StabilityParameters(ClockQuery, AgainstQuery, StabilityQuery):
    """Which metric, on which subsets, and how it is shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class Variation(BaseModel):
    """Total variation of a curve: mean absolute step from one fraction to the next, and other readings."""

    absolute: float
    signed: float
    relative: float | None = Field(description="`absolute`, divided by the estimate of all data.")
    per_cent: float
    sum: float = Field(description="Sum of the absolute steps, not divided by their number.")


class StabilityCurve(BaseModel):
    """One label policy's curve; its bootstrap resamples units."""

    curve: list[float] = Field(description="The metric on each of `fractions` of the data.")
    full: float
    tv: Variation
    bootstrap: dict[str, float] | None = Field(
        description="Resamples, orders, mean and sd of the variation; null where a ratio has the reason too_many_subsets."
    )


class StabilityResponse(BaseModel):
    """Curves against the fraction of the data, ratios of their variation, and values by label policy."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    metric: str
    subsets: str
    source: str | None = Field(
        None, description="Source of the subsets: replicates of units, sample, or cases."
    )
    n_drawn: int | None = Field(
        None, description="Number of replicates, units of the sample, or cases that are drawn from."
    )
    exact: bool | None = Field(
        None,
        description="Whether curves show the metric itself; if not, `detail` names the statistic.",
    )
    bins: int | None = Field(None, description="The replicates' bins.")
    detail: str | None = None
    n_sample: int | None = None
    n_drawn_from: int | None = Field(
        None, description="Labelled predictions that the sample was drawn from."
    )
    fractions: list[float] | None = None
    raters: dict[str, StabilityCurve] | None = Field(
        description="Curves by label policy; null with a `reason`."
    )
    ratio: dict[str, dict[str, Any]] | None = Field(
        description="Variation under one reference label, divided by that under several raters."
    )
    disagreement: float | None = Field(None, description="Share of pairs of raters that differ.")
    n: int
    n_ratings: int
    baselines: dict[str, Estimate] = Field(description="The metric under every label policy.")
    n_majority_ties: int
    reason: str | None = None


CURVES: dict[str, Any] = success(
    StabilityResponse,
    "Curves and baselines, or a figure of the curves",
    ETag="Changes with the state and the query.",
)


@router.get("/v1/models/{model}/stability", operation_id="getStability", responses=or_drawn(CURVES))
async def get_stability(
    read: TheReadAccess, query: Annotated[StabilityParameters, Query()]
) -> Response:
    """Return how stable a calibration error is as data shrink, for several raters and for one label.

    A metric that has to be computed again for each subset, such as `tace`, has curves without resamples here: `bootstrap`
    is null, and so is the value of each `ratio` (`reason: too_many_subsets`). The library computes both.
    """
    return await read.respond(await read.read_query(query), query.format, draw_stability)
