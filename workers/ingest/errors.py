"""Reasons why the inbox does not take a batch, or cannot report on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant_server.workers.store.registry import ModelConfig


class BatchConflict(RuntimeError):
    """The batch id was used before with other content (409)."""

    def __init__(self, batch_id: str):
        super().__init__(f"the batch id {batch_id} was used before with other content")
        self.batch_id = batch_id


class Saturated(RuntimeError):
    """The store accepts no more at present (429)."""

    def __init__(self, detail: str, retry_after_s: int):
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class BacklogFull(Saturated):
    """The backlog of the model's partition is full (429)."""


class IdsFull(Saturated):
    """There is no room to store another batch id; none is deleted before it expires (429)."""


class RecordsFull(Saturated):
    """There is no room to retain another prediction or label by id; none is dropped before its retention (429)."""


class StoreUnavailable(RuntimeError):
    """The store cannot be reached, or cannot write (503). The batch may have been accepted: repeat it under its id."""

    def __init__(self, detail: str, retry_after_s: int = 2):
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class StoreFull(StoreUnavailable):
    """The store's memory is full: nothing was written (503)."""


class ModelMismatch(RuntimeError):
    """The model is not the one that the batch was checked against; `current` is the registered one, or None."""

    def __init__(self, current: ModelConfig | None):
        super().__init__("the model was changed, deleted or made again meanwhile")
        self.current = current


class ModelGone(RuntimeError):
    """The model was deleted, or made again, while a request waited for a batch."""


class UnknownBatch(LookupError):
    """There is no record of the batch id: it was never accepted, or its record has expired."""
