"""The reliability table, as numbers or drawn."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.comparing import AgainstQuery, compared
from service.dependencies import IfNoneMatch, Prefer, Reader, TheConnection, TheReading
from service.diagrams import draw_reliability
from service.document import answers, problems
from service.estimates import WindowShown
from service.names import ModelId
from service.pictures import Format, drawn, media_type_of, or_drawn
from service.queries import BinningQuery, asked_of, unanswerable
from service.reading import Ask
from service.reception import model_of

router = APIRouter(tags=["read"], default_response_class=Response)


class ReliabilityQuery(BinningQuery, AgainstQuery):
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


@router.get(
    "/v1/models/{model}/reliability",
    operation_id="getReliability",
    responses={
        200: or_drawn(TABLE),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_reliability(
    model: ModelId,
    request: Request,
    caller: Reader,
    query: Annotated[ReliabilityQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Return the reliability table as JSON, or the diagram of it as SVG or PNG."""
    config = await model_of(connection, caller, model)
    params = {name: value for name, value in asked_of(query, config).items() if name != "format"}
    if query.binning != "equal_width" and (query.against or query.against_model):
        raise unanswerable("/binning", "equal_width", "bins of equal mass are not the same on two sides")
    ask = await compared(Ask("reliability", config, params, query), query, caller, connection, reading)
    media_type = media_type_of(query.format, request)
    return await reading.answer(request, ask, media_type, drawn(draw_reliability, media_type))
