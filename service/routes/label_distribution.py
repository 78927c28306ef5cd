"""Predictions against the distribution of their ratings, as numbers or as a figure."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.figures.label_distribution import draw_label_distribution
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.label_distribution import LabelDistributionQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class LabelDistributionParameters(ClockQuery, AgainstQuery, LabelDistributionQuery):
    """Which window, and how it is shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class LabelDistributionResponse(BaseModel):
    """The three measures, with quantiles and a histogram over predictions."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    n: int
    n_ratings: int
    ent_ce: Estimate
    dist_ce: Estimate
    rank_cs: Estimate


MEASURES: dict[str, Any] = success(
    LabelDistributionResponse,
    "The measures, or their histograms",
    ETag="Changes with the state and the query.",
)


@router.get(
    "/v1/models/{model}/label-distribution",
    operation_id="getLabelDistribution",
    responses=or_drawn(MEASURES),
)
async def get_label_distribution(
    read: TheReadAccess, query: Annotated[LabelDistributionParameters, Query()]
) -> Response:
    """Return how predictions differ from the distribution of their ratings as JSON, SVG or PNG."""
    return await read.respond(await read.read_query(query), query.format, draw_label_distribution)
