"""Outcome of a posted batch, by its id; sources of numbered messages: where a sender continues; and batches that were accepted and not merged."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Path, Response
from pydantic import BaseModel, Field

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.errors import BatchUnknown, DeadLetterUnknown
from calibrant_server.service.http.parameters import BatchId, ModelId, SourceName
from calibrant_server.service.ingest.schemas import IngestResponse
from calibrant_server.service.ingest.service import receipt_body
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.collection import Collection, CollectionAccess, Page
from calibrant_server.service.reads.dependencies import Admin, TheConnection
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.workers.ingest.dead_letters import DEAD, DeadLetter
from calibrant_server.workers.store.windows import rfc3339

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


sources = APIRouter(tags=["predictions"], default_response_class=Response)


class SourceResponse(BaseModel):
    """A source of numbered messages."""

    source: str
    watermark: int | None = Field(
        description="Number after the last accepted message: `from` of the next batch. Null before the first batch, which may start anywhere."
    )


@sources.get(
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


letters = APIRouter(tags=["batches"], default_response_class=Response)

LetterId = Annotated[
    str,
    Path(
        pattern=r"^(dead|parked)-\d{1,20}-\d{1,20}$",
        description="`id` of the entry in the list.",
        examples=["parked-1763800000000-0"],
    ),
]


class DeadLetterEntry(BaseModel):
    """A batch, or a command about the model, that was accepted and not merged."""

    id: str
    status: Literal["dead_lettered", "parked"] = Field(
        description="`dead_lettered`: it cannot be merged as it is. `parked`: it failed ten times alone, or touches a "
        "damaged pane; it can be replayed once the cause is removed"
    )
    batch_id: str = Field(description="Empty for a command about the model")
    kind: str = Field(description="What was sent: `predictions`, `labels`, `histograms`, ...")
    reason: str = Field(description="The last error")
    received_at: datetime | None
    stored_at: datetime = Field(description="When it became a dead letter or was parked")
    n_bytes: int


class ReplayResponse(BaseModel):
    """An entry that was moved back to the queue."""

    id: str
    status: Literal["accepted"]


LETTERS = Collection(
    letters,
    "/v1/models/{model}/dead-letters",
    "dead_letters",
    DeadLetterEntry,
    Admin,
    "The entries",
)


@LETTERS.lists("listDeadLetters")
async def list_dead_letters(access: CollectionAccess) -> Page:
    """List accepted batches that were not merged, with the reason of each."""
    found = await access.connection.inbox.letters.of_model(await access.config())
    return LETTERS.paged(access, found, lambda each: [each.at_ms, each.id], _letter_shown)


@letters.post(
    "/v1/models/{model}/dead-letters/{id}/replay",
    operation_id="replayDeadLetter",
    status_code=202,
    responses={202: success(ReplayResponse, "The entry is in the queue again"), **problems(422)},
)
async def replay_dead_letter(
    model: ModelId, id: LetterId, caller: Admin, connection: TheConnection
) -> Response:
    """Move an entry back to the queue: it is merged once, under its own batch id."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        done = await connection.inbox.letters.replay(config, id)
    if not done:
        raise DeadLetterUnknown()
    return Response(orjson.dumps({"id": id, "status": "accepted"}), 202, media_type=JSON)


@LETTERS.deletes("discardDeadLetter", ("id", LetterId), "The entry is discarded", Admin, 422)
async def discard_dead_letter(access: CollectionAccess) -> None:
    """Discard an entry permanently: its batch is never merged."""
    if not await access.connection.inbox.letters.discard(await access.config(), access.id):
        raise DeadLetterUnknown()


def _letter_shown(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "status": "dead_lettered" if letter.state == DEAD else "parked",
        "batch_id": letter.batch_id,
        "kind": letter.kind,
        "reason": letter.why,
        "received_at": None if letter.received_ms is None else _time(letter.received_ms),
        "stored_at": _time(letter.at_ms),
        "n_bytes": letter.n_bytes,
    }


def _time(at_ms: int) -> str:
    return rfc3339(datetime.fromtimestamp(at_ms / 1000, UTC))
