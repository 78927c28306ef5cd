"""The reliability table, as numbers or drawn."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from service.dependencies import IfNoneMatch, Prefer, Reader, TheConnection, TheReading
from service.diagrams import draw_reliability
from service.document import answers, problems
from service.estimates import WindowShown
from service.headers import negotiated
from service.names import ModelId
from service.queries import BinningQuery, asked_of
from service.reading import Ask, Render
from service.reception import model_of

router = APIRouter(tags=["read"], default_response_class=Response)
MEDIA_TYPES = {"json": "application/json", "svg": "image/svg+xml", "png": "image/png"}


class ReliabilityQuery(BinningQuery):
    """How the table is made and shown."""

    format: Literal["json", "svg", "png"] | None = Field(
        None, description="In place of the header Accept."
    )


class ReliabilityAnswer(BaseModel):
    """The table behind the diagram."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int
    n_ratings: int
    state_version: str


IMAGES: dict[str, Any] = {
    "image/svg+xml": {"schema": {"type": "string"}},
    "image/png": {"schema": {"type": "string", "contentMediaType": "image/png"}},
}
TABLE = answers(ReliabilityAnswer, "The table, or the diagram", ETag="State and query.")


@router.get(
    "/v1/models/{model}/reliability",
    operation_id="getReliability",
    responses={
        200: {**TABLE, "content": TABLE["content"] | IMAGES},
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
    ask = Ask("reliability", config, params, query)
    media_type = media_type_of(query, request)
    return await reading.answer(request, ask, media_type, rendering(media_type))


def media_type_of(query: ReliabilityQuery, request: Request) -> str:
    """Return what is to be made: as the query says, else as Accept does."""
    if query.format:
        return MEDIA_TYPES[query.format]
    return negotiated(request, list(MEDIA_TYPES.values()))


def rendering(media_type: str) -> Render | None:
    """Return how the table becomes this media type; nothing is to be done for JSON."""
    if media_type == MEDIA_TYPES["json"]:
        return None

    async def render(body: bytes) -> bytes:
        return await run_in_threadpool(draw_reliability, orjson.loads(body), media_type)

    return render
