"""Orders about a model: entries without a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from calibrant_server.workers.ingest.entries import ALARM, CONTROL, EntryError, IngestEntry

_DELETE_MODEL = {"op": "delete_model"}


def delete_model(model: str, generation: str) -> IngestEntry:
    """Return the entry that removes everything a deleted model has left."""
    payload = json.dumps(_DELETE_MODEL).encode()
    return _order(model, generation, CONTROL, payload)


def read_control(payload: bytes) -> dict[str, Any]:
    """Return what a control entry says; raise EntryError for an operation that this version does not know."""
    try:
        order = json.loads(payload)
    except ValueError as error:
        raise EntryError(f"the control entry cannot be read: {error}") from error
    if order != _DELETE_MODEL:
        raise EntryError(f"the control operation is not known: {str(order)[:200]}")
    found: dict[str, Any] = order
    return found


def alarm_order(model: str, generation: str, order: Mapping[str, Any]) -> IngestEntry:
    """Return the entry of an order about a model's alarm."""
    payload = json.dumps(order, separators=(",", ":")).encode()
    return _order(model, generation, ALARM, payload)


def _order(model: str, generation: str, kind: str, payload: bytes) -> IngestEntry:
    return IngestEntry(
        model=model,
        generation=generation,
        batch_id="",
        kind=kind,
        digest=b"",
        received_ms=int(datetime.now(UTC).timestamp() * 1000),
        payload=payload,
    )
