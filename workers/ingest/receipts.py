"""What passes between the door and the engine's inbox: batches, receipts, and why something was not taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from calibrant_server.workers.ingest.entries import Places
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.registry import ModelConfig


class BatchConflict(RuntimeError):
    """The batch id is known with other content (409)."""

    def __init__(self, batch_id: str):
        super().__init__(f"the batch id {batch_id} was used before with other content")
        self.batch_id = batch_id


class Saturated(RuntimeError):
    """The store takes no more for now (429)."""

    def __init__(self, detail: str, retry_after_s: int):
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class BacklogFull(Saturated):
    """Too much waits to be merged in the model's partition (429)."""


class IdsFull(Saturated):
    """No room to remember another batch id; none is forgotten before its time (429)."""


class RecordsFull(Saturated):
    """No room to retain another prediction or label by id; none is dropped before its time (429)."""


class StoreUnavailable(RuntimeError):
    """The store cannot be reached, or cannot write (503). The batch may have been taken: repeat with its id."""

    def __init__(self, detail: str, retry_after_s: int = 2):
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class StoreFull(StoreUnavailable):
    """The store's memory is full: nothing was written (503)."""


class ModelMismatch(RuntimeError):
    """The model is not what the batch was checked against; `current` is what stands in the registry, or None."""

    def __init__(self, current: ModelConfig | None):
        super().__init__("the model was changed, deleted or made again meanwhile")
        self.current = current


class ModelGone(RuntimeError):
    """The model was deleted, or made again, while somebody waited for a batch."""


class UnknownBatch(LookupError):
    """No record of the batch id: never taken, or longer ago than ids are remembered."""


@dataclass(frozen=True)
class IngestBatch:
    """A checked batch on its way into the stream.

    Attributes
    ----------
    model : what the batch was checked against
    payload : see `calibrant_server.workers.ingest.entries`
    digest : of the content, 16 bytes
    create : make the model, as given, if there is none
    retains : records are kept for its rows, by id
    partial : what is good of it is taken
    places : of its rows as they were sent, where they were not numbered so
    ids : that it labels; labels of predictions that are there find room where new records do not
    """

    model: ModelConfig
    batch_id: str
    kind: str
    payload: bytes
    digest: bytes
    n_accepted: int
    n_rejected: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    create: bool = False
    retains: bool = False
    partial: bool = False
    places: Places | None = None
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """What is known of a batch id."""

    batch_id: str
    status: str
    duplicate: bool
    accepted: int
    rejected: int
    errors: list[dict[str, Any]]
    durability: str
    stale: bool | None = None
    duplicate_rows: int = 0
    stale_rows: int = 0
    conflicts: int = 0
    slices_other: dict[str, int] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether the batch has been dealt with."""
        return self.status in batch_records.FINAL
