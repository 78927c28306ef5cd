"""Outcome of a posted batch, by its id; sources of numbered messages: where a sender continues; and batches that were accepted and not merged."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Response
from pydantic import BaseModel, Field

from calibrant_server.service.http.json_bodies import json_response
from calibrant_server.service.http.parameters import BatchId, SourceName
from calibrant_server.service.http.problems import BatchUnknown, DeadLetterUnknown
from calibrant_server.service.ingest.schemas import IngestResponse
from calibrant_server.service.ingest.service import receipt_body
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import Access, Admin, Operations, Page
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.workers.ingest.dead_letters import DEAD, DeadLetter
from calibrant_server.workers.store.windows import rfc3339

router = Operations("batches")
Follower = Annotated[Caller, Depends(needs("ingest", "read"))]


@router.operation(
    "GET /v1/models/{model}/batches/{batch_id}",
    Follower,
    success(IngestResponse, "The batch"),
    id=("batch_id", BatchId),
)
async def get_batch(access: Access) -> dict[str, Any]:
    """Return whether a batch is accepted, merged or rejected, with counts and row errors."""
    config = await access.config()
    receipt = await access.inbox.record(config.key, access.id)
    if receipt is None:
        raise BatchUnknown()
    return receipt_body(access.model, receipt)


sources = Operations("predictions")


class SourceResponse(BaseModel):
    """A source of numbered messages."""

    source: str
    watermark: int | None = Field(
        description="Number after the last accepted message: `from` of the next batch. Null before the first batch, which may start anywhere."
    )


@sources.operation(
    "GET /v1/models/{model}/sources/{source}",
    Follower,
    success(SourceResponse, "The source"),
    id=("source", SourceName),
)
async def get_source(access: Access) -> dict[str, Any]:
    """Return the watermark of a source. Batches in the queue count as accepted."""
    watermark = await access.inbox.sources.watermark(await access.config(), access.id)
    return {"source": access.id, "watermark": watermark}


LETTER = (
    "id",
    Annotated[
        str,
        Path(
            pattern=r"^(dead|parked)-\d{1,20}-\d{1,20}$",
            description="`id` of the entry in the list.",
            examples=["parked-1763800000000-0"],
        ),
    ],
)


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
    router,
    "/v1/models/{model}/dead-letters",
    "dead_letters",
    DeadLetterEntry,
    Admin,
    "The entries",
)


@LETTERS.lists()
async def list_dead_letters(access: Access) -> Page:
    """List accepted batches that were not merged, with the reason of each."""
    found = await access.inbox.letters.of_model(await access.config())
    return LETTERS.paged(access, found, lambda each: [each.at_ms, each.id], _letter_shown)


@router.operation(
    "POST /v1/models/{model}/dead-letters/{id}/replay",
    Admin,
    {202: success(ReplayResponse, "The entry is in the queue again")},
    id=LETTER,
)
async def replay_dead_letter(access: Access) -> Response:
    """Move an entry back to the queue: it is merged once, under its own batch id."""
    if not await access.inbox.letters.replay(await access.config(), access.id):
        raise DeadLetterUnknown()
    return json_response({"id": access.id, "status": "accepted"}, 202)


@LETTERS.deletes(LETTER, "The entry is discarded", Admin)
async def discard_dead_letter(access: Access) -> None:
    """Discard an entry permanently: its batch is never merged."""
    if not await access.inbox.letters.discard(await access.config(), access.id):
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
