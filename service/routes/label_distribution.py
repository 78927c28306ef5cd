"""Predictions against the distribution of their ratings, as numbers or drawn."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.figures.label_distribution import draw_label_distribution
from calibrant_server.service.openapi.schema import answers
from calibrant_server.service.reads.compare import AgainstQuery, compared
from calibrant_server.service.reads.dependencies import TheRead
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import WindowQuery
from calibrant_server.service.reads.service import ReadQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class LabelDistributionQuery(WindowQuery, AgainstQuery):
    """Which window; ratings are compared as they are, whatever the label policy."""

    ci: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    format: Format | None = Field(None, description="In place of the header Accept.")


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


MEASURES: dict[str, Any] = answers(
    LabelDistributionResponse, "The measures, or their histograms", ETag="State and query."
)


@router.get(
    "/v1/models/{model}/label-distribution",
    operation_id="getLabelDistribution",
    responses=or_drawn(MEASURES),
)
async def get_label_distribution(
    read: TheRead, query: Annotated[LabelDistributionQuery, Query()]
) -> Response:
    """Return how predictions differ from the distribution of their ratings as JSON, SVG or PNG."""
    params = query.params()
    params.pop("format", None)
    ask = ReadQuery("label_distribution", await read.config(), params, query)
    ask = await compared(ask, query, read.caller, read.connection, read.reading)
    return await read.answer(ask, query.format, draw_label_distribution)
