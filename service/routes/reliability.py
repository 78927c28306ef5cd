"""The reliability table, as numbers or drawn."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.figures.reliability import draw_reliability
from calibrant_server.service.openapi.schema import answers
from calibrant_server.service.reads.dependencies import TheRead
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery, unanswerable
from calibrant_server.workers.queries.kinds.reliability import ReliabilityQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class ReliabilityParameters(ClockQuery, AgainstQuery, ReliabilityQuery):
    """How the table is made and shown."""

    format: Format | None = Field(None, description="In place of the header Accept.")


class ReliabilityResponse(BaseModel):
    """The table behind the diagram."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int
    n_ratings: int
    state_version: str


TABLE = answers(ReliabilityResponse, "The table, or the diagram", ETag="State and query.")


@router.get(
    "/v1/models/{model}/reliability", operation_id="getReliability", responses=or_drawn(TABLE)
)
async def get_reliability(
    read: TheRead, query: Annotated[ReliabilityParameters, Query()]
) -> Response:
    """Return the reliability table as JSON, or the diagram of it as SVG or PNG."""
    if query.binning != "equal_width" and query.against:
        raise unanswerable(
            "/binning", "equal_width", "bins of equal mass are not the same on two sides"
        )
    return await read.respond(await read.ask(query), query.format, draw_reliability)
