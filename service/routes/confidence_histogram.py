"""The confidence histogram of a window, as numbers or as a figure."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.figures.confidence_histogram import draw_confidence
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.confidence_histogram import ConfidenceHistogramQuery

router = APIRouter(tags=["histograms"], default_response_class=Response)


class ConfidenceParameters(ClockQuery, AgainstQuery, ConfidenceHistogramQuery):
    """How fine the histogram is, of what, and how it is shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class ConfidenceResponse(BaseModel):
    """Mass by class, incorrect and correct, and fine bin [i / bins, (i + 1) / bins), the last with 1."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    raters: str
    bins: int
    edges: str
    source: str | None = Field(
        None,
        description="`state`, or `sample` where only the complete stored sample gives these bins.",
    )
    n: int
    n_ratings: int | None = None
    classes: list[str]
    case: str | None
    mass: float | None = None
    smoothing: int | None = None
    label: list[list[list[float]]] | None = Field(
        description="By class: mass of samples of other classes, and of this class."
    )
    prediction: list[list[float]] | None = Field(
        None, description="Mass of incorrect and of correct predictions, by bin of the top class."
    )
    uncertainty: list[list[float]] | None = Field(
        None,
        description="Mass of incorrect and of correct predictions, by bin of entropy / log K. The number of bins divides 240.",
    )
    exact: dict[str, float] | None = Field(
        None, description="Sums of NLL and Brier, not rounded to bins."
    )
    missing: dict[str, str] | None = Field(None, description="Why a part is null.")
    against: dict[str, Any] | None = Field(None, description="The other side's histograms.")
    distance: list[float] | None = Field(
        None, description="With `against`, by class: total variation of the two histograms."
    )
    reason: str | None = None


HISTOGRAM: dict[str, Any] = success(
    ConfidenceResponse, "The histogram, or a figure", ETag="Changes with the state and the query."
)


@router.get(
    "/v1/models/{model}/confidence-histogram",
    operation_id="getConfidenceHistogram",
    responses=or_drawn(HISTOGRAM),
)
async def get_confidence_histogram(
    read: TheReadAccess, query: Annotated[ConfidenceParameters, Query()]
) -> Response:
    """Return the confidence histogram of a window or a case; it may be posted to another model's histograms."""
    return await read.respond(await read.read_query(query), query.format, draw_confidence)
