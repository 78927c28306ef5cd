"""Payloads of labels and of updates (histograms, panes): how entries of these kinds are packed."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import EntryError

_MAGIC = b"CU"
_FORMAT = 1
_HEAD = struct.Struct("<2sBxI")
_ROWS_TOGETHER = 1000  # as plain lists, rows take several times their memory


def pack_labels(rows: Sequence[LabelRow]) -> bytes:
    """Pack the payload of kind `labels`; equal rows give equal bytes."""
    parts = [
        _rows_as_json(rows[start : start + _ROWS_TOGETHER])
        for start in range(0, len(rows), _ROWS_TOGETHER)
    ]
    return b'{"format":%d,"rows":[%b]}' % (_FORMAT, b",".join(parts))


def _rows_as_json(rows: Sequence[LabelRow]) -> bytes:
    return orjson.dumps([[row.id, sorted(row.unnamed.items()), row.ratings] for row in rows])[1:-1]


def unpack_labels(payload: bytes) -> list[Any]:
    """Return the rows of a payload of kind `labels`, as lists: id, unnamed and named ratings; raise EntryError if it is damaged."""
    try:
        found = orjson.loads(payload)
        if found["format"] != _FORMAT:
            raise EntryError(f"received labels in another format; expected format {_FORMAT}")
        rows: list[Any] = found["rows"]
        for _, unnamed, ratings in rows:
            if type(unnamed) is not list or type(ratings) is not list:
                raise EntryError("the labels cannot be read: a row is not an id with two lists")
    except (KeyError, TypeError, ValueError) as error:
        raise EntryError(f"the labels cannot be read: {error}") from error
    return rows


@dataclass(frozen=True)
class PackedUpdate:
    """A histogram or pane that a client filled itself.

    Attributes
    ----------
    packed : `calibrant.Histogram.pack()` or `calibrant.Pane.pack()`
    event_time_us : microseconds since the epoch; None for the histogram's own, else the time of receipt
    slices : key to value, None for the histogram's own; the update fills the slice of all rows and one of each pair
    source, epoch, sequence : given together for running totals (`mode: cumulative`), else None
    at : pointer to the update in the request body, None for the body itself
    """

    packed: bytes
    event_time_us: int | None = None
    slices: dict[str, str] | None = None
    source: str | None = None
    epoch: int | None = None
    sequence: int | None = None
    at: str | None = None

    @property
    def is_cumulative(self) -> bool:
        """Whether the totals replace those of a smaller sequence."""
        return self.source is not None


def pack_updates(updates: Sequence[PackedUpdate]) -> bytes:
    """Pack the payload of kind `histograms` or `pane`."""
    heads = []
    for update in updates:
        head = {
            name: value
            for name, value in asdict(update).items()
            if value is not None and name != "packed"
        }
        heads.append({**head, "n": len(update.packed)})
    head_bytes = json.dumps(heads, separators=(",", ":")).encode()
    return (
        _HEAD.pack(_MAGIC, _FORMAT, len(head_bytes))
        + head_bytes
        + b"".join(u.packed for u in updates)
    )


def unpack_updates(payload: bytes) -> list[PackedUpdate]:
    """Unpack a payload of kind `histograms` or `pane`; raise EntryError if it is damaged."""
    try:
        magic, version, head_length = _HEAD.unpack_from(payload)
        if (magic, version) != (_MAGIC, _FORMAT):
            raise EntryError(f"received updates in another format; expected format {_FORMAT}")
        at = _HEAD.size + head_length
        heads: list[dict[str, Any]] = json.loads(payload[_HEAD.size : at])
        updates = []
        for head in heads:
            length = head.pop("n")
            updates.append(PackedUpdate(packed=payload[at : at + length], **head))
            at += length
    except (
        struct.error,
        TypeError,
        KeyError,
        AttributeError,
        UnicodeDecodeError,
        json.JSONDecodeError,
    ) as error:
        raise EntryError(f"the updates cannot be read: {error}") from error
    if at != len(payload):
        raise EntryError(f"received {len(payload)} bytes of updates; expected {at}")
    return updates
