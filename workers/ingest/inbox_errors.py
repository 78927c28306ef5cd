"""Errors of the inbox: why it does not accept a batch, or cannot report on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from calibrant_server.workers.store.transient_errors import (
    CONFIGURED_CODES,
    TRANSIENT_CODES,
    code_of,
    store_message,
)

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.entries import SourceOffsets
    from calibrant_server.workers.store.model_config import ModelConfig


class BatchConflictError(RuntimeError):
    """The batch id was used before with other content (409)."""

    def __init__(self, batch_id: str):
        super().__init__(
            f"received other content under batch id {batch_id}, which was used before; use another id"
        )
        self.batch_id = batch_id


class OffsetMismatchError(RuntimeError):
    """The batch does not follow what was accepted of its source before (409).

    Attributes
    ----------
    watermark : the offset behind the last accepted message of the source
    is_gap : messages between the watermark and the batch are missing; otherwise some of the batch were accepted before
    """

    def __init__(self, offsets: SourceOffsets, watermark: int, is_gap: bool):
        what = "are missing before it" if is_gap else "were accepted before"
        super().__init__(
            f"received offsets [{offsets.first}, {offsets.end}) of source {offsets.source}, of which messages {what}; "
            f"expected offsets from {watermark}"
        )
        self.watermark = watermark
        self.is_gap = is_gap


class SaturatedError(RuntimeError):
    """The store accepts no more at present (429)."""

    def __init__(self, detail: str, retry_after_s: int):
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class BacklogFullError(SaturatedError):
    """The backlog of the model's partition is full (429)."""


class IdsFullError(SaturatedError):
    """There is no room to store another batch id; none is deleted before it expires (429)."""


class SourcesFullError(SaturatedError):
    """The model has the maximum of sources (429)."""


class RecordsFullError(SaturatedError):
    """There is no room to retain another prediction or label by id; none is dropped before its retention (429)."""


class StoreUnavailableError(RuntimeError):
    """The store cannot be reached (503). The batch may have been accepted: repeat it under its id."""

    def __init__(self, detail: str, retry_after_s: int = 2):
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class StoreRejectedError(StoreUnavailableError):
    """The store responds and rejects the request because of its own state (503); `reason` is its message."""

    def __init__(self, reason: str, retry_after_s: int = 5):
        super().__init__(f"the store rejected the request: {reason}", retry_after_s)
        self.reason = reason


class StoreFullError(StoreUnavailableError):
    """The store's memory is full: nothing was written (503)."""


class ModelMismatchError(RuntimeError):
    """The model is not the one that the batch was checked against; `current` is the registered one, or None."""

    def __init__(self, current: ModelConfig | None):
        super().__init__("the model was changed, deleted or created again since the check")
        self.current = current


class ModelGoneError(RuntimeError):
    """The model was deleted, or created again, while a request waited for a batch."""


class UnknownBatchError(LookupError):
    """There is no record of the batch id: it was never accepted, or its record has expired."""


def unavailable(error: Exception) -> StoreUnavailableError:
    """Return the error for callers; it quotes the store's message on its own state only, which names no data."""
    code = code_of(error)
    if code == "OOM":
        return StoreFullError("the store's memory is full", 5)
    if code in CONFIGURED_CODES:
        return StoreRejectedError(f"{code} (the log of the service has its message)")
    if code in TRANSIENT_CODES:
        return StoreRejectedError(store_message(error), 2 if code == "LOADING" else 5)
    if code or isinstance(error, ResponseError):
        return StoreRejectedError("an unexpected error (the log of the service has it)")
    return StoreUnavailableError("the store cannot be reached")
