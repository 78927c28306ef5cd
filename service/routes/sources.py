"""Sources of numbered messages: where a sender continues."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.dependencies import TheConnection
from calibrant_server.service.http.parameters import ModelId, SourceName
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.security.keys import Caller, needs

router = APIRouter(tags=["predictions"], default_response_class=Response)


class SourceResponse(BaseModel):
    """A source of numbered messages."""

    source: str
    watermark: int | None = Field(
        description="Number after the last accepted message: `from` of the next batch. Null before the first batch, which may start anywhere."
    )


@router.get(
    "/v1/models/{model}/sources/{source}",
    operation_id="getSource",
    responses={200: success(SourceResponse, "The source"), **problems(422)},
)
async def get_source(
    model: ModelId,
    source: SourceName,
    caller: Annotated[Caller, Depends(needs("ingest", "read"))],
    connection: TheConnection,
) -> Response:
    """Return the watermark of a source. Batches in the queue count as accepted."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        watermark = await connection.inbox.sources.watermark(config, source)
    body = orjson.dumps({"source": source, "watermark": watermark})
    return Response(body, 200, {"Cache-Control": "no-cache"}, JSON)
