"""What became of a batch."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Response

from service.auth import Caller, needs
from service.dependencies import TheConnection
from service.document import answers, problems
from service.engine import engine_errors
from service.errors import BatchUnknown
from service.names import BatchId, ModelId
from service.reception import IngestAnswer, model_of, receipt_body

router = APIRouter(tags=["ingest"], default_response_class=Response)
Follower = Annotated[Caller, Depends(needs("ingest", "read"))]


@router.get(
    "/v1/models/{model}/batches/{batch_id}",
    operation_id="getBatch",
    responses={200: answers(IngestAnswer, "The batch"), **problems(422)},
)
async def get_batch(
    model: ModelId, batch_id: BatchId, caller: Follower, connection: TheConnection
) -> Response:
    """Tell whether a batch is accepted, merged or rejected, with counts and row errors."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        receipt = await connection.inbox.record(config.key, batch_id)
    if receipt is None:
        raise BatchUnknown()
    return Response(orjson.dumps(receipt_body(model, receipt)), media_type="application/json")
