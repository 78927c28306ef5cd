"""Deltas: what the batches of one commit in a side partition add to the panes of a hot model.

A delta goes to the stream of the model's own partition as one entry, and is merged there like posted panes. If the rows of its
batches take less than the panes that they fill, it contains the batches themselves: the own partition then adds them to the
tail, as if they had been sent to it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from calibrant_server.workers.ingest.entries import EntryError

_MAGIC, _FORMAT = b"CD", 1
_HEAD = struct.Struct("<2sBxI")


class DeltaName(NamedTuple):
    """Identity of a delta of a model: the side partition and its number there, which grows and is never used again."""

    partition: int
    number: int

    @classmethod
    def read(cls, text: str) -> DeltaName:
        """Return the name that `str` wrote."""
        partition, _, number = text.partition(":")
        return cls(int(partition), int(number))

    def __str__(self) -> str:
        return f"{self.partition}:{self.number}"

    @classmethod
    def of_batch_id(cls, batch_id: str) -> DeltaName:
        """Return the name of the delta of an entry."""
        return cls.read(batch_id.removeprefix("|"))

    @property
    def batch_id(self) -> str:
        """Batch id of its entry; no client can send it."""
        return f"|{self}"

    @property
    def source(self) -> str:
        """Source of its entry, whose watermark detects that it was appended before."""
        return f"|side {self.partition}"

    @property
    def watermark_field(self) -> str:
        """Mark of the model with the number after that of the last delta that was appended."""
        return f"source:{self.source}"

    @property
    def merged_field(self) -> str:
        """Mark of the model with the number of the last delta that was taken from the stream."""
        return f"merged:{self.source}"


def without_deltas(marks: Mapping[str, Any]) -> dict[str, Any]:
    """Return marks of a model without those of deltas, whose numbers count in side partitions of one store only.

    In another store they would say of its first deltas that they are merged.
    """
    return {
        name: value
        for name, value in marks.items()
        if not name.removeprefix("source:").removeprefix("merged:").startswith("|side ")
    }


class SentBatch(NamedTuple):
    """A batch as it came: when, and its payload."""

    received_ms: int
    payload: bytes


class PackedPane(NamedTuple):
    """A packed pane of a slice and time slice."""

    slice: str
    start_s: int
    packed: bytes


class PackedSample(NamedTuple):
    """Rows for the stored sample of a day, of which some pane starts at this time."""

    start_s: int
    halvings: int
    packed: bytes


@dataclass(frozen=True)
class Delta:
    """What a delta contains: batches, or panes and samples.

    Attributes
    ----------
    contains : rows of each batch, by batch id
    """

    batches: Sequence[SentBatch] = ()
    panes: Sequence[PackedPane] = ()
    samples: Sequence[PackedSample] = ()
    contains: Mapping[str, int] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Return the payload of an entry of kind `delta`."""
        parts: dict[str, Any] = {
            name: [(*each[:-1], len(each[-1])) for each in getattr(self, name)] for name in _KINDS
        }
        parts["contains"] = dict(self.contains)
        head = json.dumps(parts, separators=(",", ":")).encode()
        data = [each[-1] for name in _KINDS for each in getattr(self, name)]
        return b"".join([_HEAD.pack(_MAGIC, _FORMAT, len(head)), head, *data])

    @classmethod
    def unpack(cls, payload: bytes) -> Delta:
        """Read a payload; raise EntryError if it is damaged."""
        try:
            heads, at = _read_head(payload)
            found: dict[str, Any] = {"contains": heads.get("contains", {})}
            for name, kind in _KINDS.items():
                found[name] = []
                for *about, n_bytes in heads[name]:
                    found[name].append(kind(*about, payload[at : at + n_bytes]))
                    at += n_bytes
        except (struct.error, TypeError, KeyError, ValueError) as error:
            raise EntryError(f"the delta cannot be read: {error}") from error
        if at != len(payload):
            raise EntryError(f"received {len(payload)} bytes of a delta; expected {at}")
        return cls(**found)


def batches_in(payload: bytes) -> dict[str, int]:
    """Return the rows of each batch in a packed delta, by batch id; nothing for one of an earlier version."""
    heads, _ = _read_head(payload)
    return dict(heads.get("contains", {}))


def _read_head(payload: bytes) -> tuple[dict[str, Any], int]:
    magic, version, n_head = _HEAD.unpack_from(payload)
    if (magic, version) != (_MAGIC, _FORMAT):
        raise EntryError(f"received a delta in another format; expected format {_FORMAT}")
    at = _HEAD.size + n_head
    return json.loads(payload[_HEAD.size : at]), at


_KINDS: Mapping[str, Any] = {"batches": SentBatch, "panes": PackedPane, "samples": PackedSample}
