"""Entries of a partition's stream, and the formats of their payloads.

The service makes one `IngestBatch` per posted batch. The stream holds its fields, and the worker reads them back as an
`IngestEntry`. Fields of an entry, by their one-letter names: `i` batch id, `m` tenant/model, `g` generation of the model,
`k` kind, `h` digest of the content (16 bytes), `t` time of receipt in milliseconds, `b` payload. Payloads by kind:

- `predictions`: `calibrant.Batch.pack()`
- `histograms`: `pack_updates`, a run of histogram updates
- `pane`: `pack_updates` with one packed `calibrant.Pane`
- `labels`: `pack_labels`, labels for predictions by id
- `removal`: JSON, `{"id": ...}`: one prediction is removed
- `baseline`: JSON, `{"op": "freeze" or "remove", "name": ...}` and the window, slice and clock to freeze
- `restore`: lines of an export (`calibrant_server.workers.lifecycle.transfer`)
- `control`: JSON, `{"op": "delete_model"}`
- `alarm`: JSON, `{"op": ...}`: an order about a model's alarm (`calibrant_server.workers.alarm.alarm_commit`)

Optional fields: `p` valid rows are accepted although others are not, `w` places of the rows, `r` largest number of
retained records that may result, `o` the id under which an entry came that was parked and replayed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from calibrant.core.errors import Violation
from calibrant.input.notes import NO_NOTES, InputNotes
from calibrant_server.workers.store.key_names import tenant_of, with_tenant

if TYPE_CHECKING:
    from calibrant_server.workers.store.model_config import ModelConfig

PREDICTIONS, HISTOGRAMS, PANE, CONTROL = "predictions", "histograms", "pane", "control"
LABELS, REMOVAL, ALARM = "labels", "removal", "alarm"
BASELINE, RESTORE = "baseline", "restore"
KINDS = (PREDICTIONS, HISTOGRAMS, PANE, LABELS, REMOVAL, BASELINE, RESTORE, CONTROL, ALARM)
# Orders have no batch: no record of an id, and no share of the backlog.
ORDERS = (CONTROL, ALARM)
ALONE = (BASELINE, RESTORE, *ORDERS)
# What a field of a hash costs in the server in addition to its name and value, in tables of many fields.
FIELD_OVERHEAD_BYTES = 56
# Rows of one entry with places; batches with ids have fewer.
MAX_PLACES = 4_000_000
# Times of receipt in milliseconds are before this one.
MAX_RECEIVED_MS = 2**32 * 1000


class EntryError(ValueError):
    """The bytes are not an entry, or not one of a format that is known."""


@dataclass(frozen=True)
class Places:
    """Numbers of rows as they were sent: of lines or records, or in columns with other rows as well.

    Attributes
    ----------
    rows : numbers of the rows
    by_line : whether each row was sent as a record of its own
    under : field of the body with the records; empty for lines
    """

    rows: list[int]
    by_line: bool
    under: str = ""

    def pointer(self, column: str, row: int) -> str:
        """The pointer to a row's column as the client sent it; under its own number if it has no place."""
        if row >= len(self.rows):
            return f"/{column}/{row}"
        if not self.by_line:
            return f"/{column}/{self.rows[row]}"
        prefix = f"/{self.under}" if self.under else ""
        return f"{prefix}/{self.rows[row]}/{'id' if column == 'ids' else column}"

    def to_json(self) -> bytes:
        """Runs of rows that follow each other, which most do."""
        runs: list[list[int]] = []
        for row in self.rows:
            if runs and sum(runs[-1]) == row:
                runs[-1][1] += 1
            else:
                runs.append([row, 1])
        return json.dumps([self.under or self.by_line, runs], separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Places:
        """Read the numbers of rows; raises EntryError."""
        try:
            by_line, runs = json.loads(text)
            n_rows = sum(max(n, 0) for _, n in runs)
            is_whole = all(type(each) is int for run in runs for each in run)
        except (ValueError, TypeError, RecursionError) as error:
            raise EntryError(f"the places of the rows cannot be read: {error}") from error
        if not is_whole or n_rows > MAX_PLACES:
            raise EntryError(f"received places of {n_rows} rows; expected at most {MAX_PLACES}")
        rows = [row for first, n in runs for row in range(first, first + n)]
        return cls(rows, bool(by_line), by_line if isinstance(by_line, str) else "")


@dataclass(frozen=True)
class SourceOffsets:
    """The numbered messages of a source that a batch holds: from `first` to before `end`."""

    source: str
    first: int
    end: int


# Neither entry nor batch is frozen: they are made for each request, which takes a frozen dataclass several times as long.
@dataclass(kw_only=True)
class IngestEntry:
    """One entry of a stream: a batch, or an order about a model. It is not changed.

    Attributes
    ----------
    model : `tenant/model`
    partial : valid rows are accepted although others are not
    places : numbers of the rows as the client sent them; None if they were sent under their own numbers
    n_records : largest number of retained records that may result
    id : empty until the store has assigned one
    first_id : id before the replay; empty if the entry was not replayed
    """

    model: str
    generation: str
    batch_id: str
    kind: str
    digest: bytes
    received_ms: int
    payload: bytes
    partial: bool = False
    places: Places | None = None
    n_records: int = 0
    id: str = ""
    first_id: str = ""

    def to_fields(self) -> dict[str, bytes]:
        """Return the fields of the stream."""
        fields = {
            "i": self.batch_id.encode(),
            "m": self.model.encode(),
            "g": self.generation.encode(),
            "k": self.kind.encode(),
            "h": self.digest,
            "t": b"%d" % self.received_ms,
            "b": self.payload,
        }
        if self.partial:
            fields["p"] = b"1"
        if self.places is not None:
            fields["w"] = self.places.to_json()
        if self.n_records:
            fields["r"] = b"%d" % self.n_records
        if self.first_id:
            fields["o"] = self.first_id.encode()
        return fields

    @staticmethod
    def from_fields(entry_id: str, fields: Mapping[bytes, bytes]) -> IngestEntry:
        """Read an entry; raises EntryError."""
        try:
            return IngestEntry(
                batch_id=fields[b"i"].decode(),
                model=fields[b"m"].decode(),
                generation=fields[b"g"].decode(),
                kind=_known(fields[b"k"].decode()),
                digest=fields[b"h"],
                received_ms=_time_of(fields[b"t"]),
                payload=fields[b"b"],
                id=entry_id,
                partial=b"p" in fields,
                places=Places.from_json(fields[b"w"]) if b"w" in fields else None,
                n_records=int(fields.get(b"r", 0)),
                first_id=fields.get(b"o", b"").decode(),
            )
        except KeyError as error:
            raise EntryError(f"the entry has no field {error.args[0].decode()}") from error
        except ValueError as error:
            raise EntryError(f"the entry cannot be read: {error}") from error

    @property
    def frees_memory(self) -> bool:
        """Whether the entry deletes data, so that a store whose memory is full takes it too."""
        if self.kind == BASELINE:
            return bool(json.loads(self.payload)["op"] == "remove")
        return self.kind == REMOVAL

    @property
    def n_bytes(self) -> int:
        """Bytes of the entry in the count of the backlog."""
        return fields_bytes({name.encode(): value for name, value in self.to_fields().items()})

    @property
    def record_bytes(self) -> int:
        """Estimated bytes of the retained records that may result."""
        return _record_bytes(self.n_records, len(self.payload))


@dataclass(kw_only=True)
class IngestBatch(IngestEntry):
    """A checked batch, from the route to the stream. The batch record keeps what the stream does not.

    Attributes
    ----------
    config : model that the batch was checked against
    create : make the model as configured, if there is none
    n_accepted : valid rows, or updates
    violations : of the rows that were not accepted
    ids : predictions that the batch labels or removes; those with a record need no further room
    share : part of each bound of the partition that the model's tenant may use
    checked_revision : revision of the configuration that must still be the current one; None: any
    origin : the messages of a source that the batch holds; what was accepted before is not taken again
    notes : what was altered as the rows were read, and warnings; only the response has them
    """

    config: ModelConfig
    n_accepted: int
    create: bool = False
    violations: Sequence[Violation] = ()
    ids: tuple[str, ...] = ()
    share: float = 1.0
    checked_revision: int | None = None
    origin: SourceOffsets | None = None
    notes: InputNotes = NO_NOTES

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        batch_id: str,
        kind: str,
        payload: bytes,
        digest: bytes,
        n_accepted: int,
        *,
        received_at: datetime | None = None,
        retains: bool = False,
        **others: Any,
    ) -> IngestBatch:
        """Return a batch for a model, with further attributes by name. With `retains`, every accepted row needs a retained record."""
        received_at = received_at or datetime.now(UTC)
        return cls(
            model=config.key,
            generation=config.generation,
            batch_id=batch_id,
            kind=kind,
            digest=digest,
            received_ms=int(received_at.timestamp() * 1000),
            payload=payload,
            n_records=n_accepted if retains else 0,
            config=config,
            n_accepted=n_accepted,
            **others,
        )


def fields_bytes(fields: Mapping[bytes, bytes]) -> int:
    """Return the weight of an entry's fields: the same when it is appended and consumed, readable or not."""
    return sum(len(name) + len(value) for name, value in fields.items())


def reserved_records(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    """Return an entry's share in the count of retained records until it is consumed, readable or not."""
    return reservation(fields, len(fields.get(b"b", b"")))


def reservation(fields: Mapping[bytes, bytes], payload_bytes: int) -> dict[str, int]:
    """Return the same for fields without the payload, given its size."""
    reported = fields.get(b"r", b"")
    n_records = int(reported) if reported.isdigit() else 0
    reserved = {"coming": n_records, "coming_bytes": _record_bytes(n_records, payload_bytes)}
    return with_tenant(fields.get(b"m", b"").decode(errors="replace"), reserved)


def backlog_share(fields: Mapping[bytes, bytes], n_bytes: int | None = None) -> dict[str, int]:
    """Return an entry's bytes in the backlog of its tenant until it is consumed; orders have none.

    Parameters
    ----------
    n_bytes : of the entry, if `fields` lack its payload
    """
    if fields.get(b"k", b"").decode(errors="replace") in ORDERS:
        return {}
    tenant = tenant_of(fields.get(b"m", b"").decode(errors="replace"))
    return {f"backlog:{tenant}": fields_bytes(fields) if n_bytes is None else n_bytes}


def _record_bytes(n_records: int, payload_bytes: int) -> int:
    return n_records * FIELD_OVERHEAD_BYTES + payload_bytes if n_records else 0


def _time_of(text: bytes) -> int:
    """Return a time of receipt; records store it in 32 bits of seconds."""
    received_ms = int(text)
    if not 0 <= received_ms < MAX_RECEIVED_MS:
        raise ValueError(f"received time {received_ms}; expected 0 to {MAX_RECEIVED_MS - 1} ms")
    return received_ms


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise EntryError(f"the kind {kind!r} is not known")
    return kind
