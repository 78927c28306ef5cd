"""The reliability table, as numbers or drawn."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from service.document import answers
from service.drawings.reliability import draw_reliability
from service.estimates import WindowShown
from service.pictures import Format, or_drawn
from service.queries import AgainstQuery, ClockQuery, unanswerable
from service.reads import TheRead
from workers.answers.reliability import ReliabilityQuery

router = APIRouter(tags=["read"], default_response_class=Response)


class ReliabilityParameters(ClockQuery, AgainstQuery, ReliabilityQuery):
    """How the table is made and shown."""

    format: Format | None = Field(None, description="In place of the header Accept.")


class ReliabilityAnswer(BaseModel):
    """The table behind the diagram."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int
    n_ratings: int
    state_version: str


TABLE = answers(ReliabilityAnswer, "The table, or the diagram", ETag="State and query.")


@router.get("/v1/models/{model}/reliability", operation_id="getReliability", responses=or_drawn(TABLE))
async def get_reliability(read: TheRead, query: Annotated[ReliabilityParameters, Query()]) -> Response:
    """Return the reliability table as JSON, or the diagram of it as SVG or PNG."""
    if query.binning != "equal_width" and query.against:
        raise unanswerable("/binning", "equal_width", "bins of equal mass are not the same on two sides")
    return await read.answer(await read.ask(query), query.format, draw_reliability)
