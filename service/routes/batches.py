"""Outcome of a posted batch, by its id."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Response

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.dependencies import TheConnection
from calibrant_server.service.http.errors import BatchUnknown
from calibrant_server.service.http.parameters import BatchId, ModelId
from calibrant_server.service.ingest.schemas import IngestResponse
from calibrant_server.service.ingest.service import receipt_body
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.security.keys import Caller, needs

router = APIRouter(tags=["batches"], default_response_class=Response)
Follower = Annotated[Caller, Depends(needs("ingest", "read"))]


@router.get(
    "/v1/models/{model}/batches/{batch_id}",
    operation_id="getBatch",
    responses={200: success(IngestResponse, "The batch"), **problems(422)},
)
async def get_batch(
    model: ModelId, batch_id: BatchId, caller: Follower, connection: TheConnection
) -> Response:
    """Return whether a batch is accepted, merged or rejected, with counts and row errors."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        receipt = await connection.inbox.record(config.key, batch_id)
    if receipt is None:
        raise BatchUnknown()
    return Response(orjson.dumps(receipt_body(model, receipt)), media_type="application/json")
