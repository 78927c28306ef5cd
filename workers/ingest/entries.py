"""What stands in a partition's stream: one entry a batch, and how its payload is written.

Fields of an entry, by their one-letter names: `i` batch id, `m` tenant/model, `g` generation of the model, `k` kind,
`h` digest of the content (16 bytes), `t` milliseconds of its receipt, `b` payload. Payloads by kind:

- `predictions`: `calibrant.Batch.pack()`
- `histograms`: `pack_updates`, a run of histogram updates
- `pane`: `pack_updates` with one packed `calibrant.Pane`
- `labels`: `pack_labels`, labels for predictions by id
- `removal`: JSON, `{"id": ...}`: one prediction is taken out
- `baseline`: JSON, `{"op": "freeze" or "remove", "name": ...}` and the window, slice and clock to freeze
- `restore`: lines of an export (`calibrant_server.workers.lifecycle.transfer`)
- `control`: JSON, `{"op": "delete_model"}`
- `alarm`: JSON, `{"op": ...}`: something is done about a model's alarm (`calibrant_server.workers.alarm.commands`)

Where they say something: `p` what is good of it is taken, `w` places of its rows, `r` retained records that may come of it,
`o` the id under which an entry came that was parked and replayed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from calibrant.input.labels import LabelRow

PREDICTIONS, HISTOGRAMS, PANE, CONTROL = "predictions", "histograms", "pane", "control"
LABELS, REMOVAL, ALARM = "labels", "removal", "alarm"
BASELINE, RESTORE = "baseline", "restore"
KINDS = (PREDICTIONS, HISTOGRAMS, PANE, LABELS, REMOVAL, BASELINE, RESTORE, CONTROL, ALARM)
ALONE = (BASELINE, RESTORE, CONTROL, ALARM)
# What a field of a hash costs in the server beside its name and value, in tables of many fields.
FIELD_OVERHEAD_BYTES = 56
_MAGIC = b"CU"
_FORMAT = 1
_HEAD = struct.Struct("<2sBxI")
_DELETE_MODEL = {"op": "delete_model"}


class EntryError(ValueError):
    """The bytes are not an entry, or not one of a format that is known."""


@dataclass(frozen=True)
class Places:
    """Numbers of rows as they were sent: of lines or records, or in columns that held other rows as well.

    Attributes
    ----------
    rows : numbers of the rows
    by_line : whether each row was sent as a record of its own
    under : field of the body that held the records; empty for lines
    """

    rows: list[int]
    by_line: bool
    under: str = ""

    def pointer(self, column: str, row: int) -> str:
        """The pointer to a row's column as the client sent it."""
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
        by_line, runs = json.loads(text)
        rows = [row for first, n in runs for row in range(first, first + n)]
        return cls(rows, bool(by_line), by_line if isinstance(by_line, str) else "")


@dataclass(frozen=True)
class Entry:
    """One entry of a stream.

    Attributes
    ----------
    id : empty until the store has given it one
    partial : what is good of it is taken
    places : of its rows as the client sent them; None where they are numbered as they were sent
    n_records : retained records that may come of it, at most
    first_id : under which it came, where it was replayed
    """

    batch_id: str
    model: str
    generation: str
    kind: str
    digest: bytes
    received_ms: int
    payload: bytes
    id: str = ""
    partial: bool = False
    places: Places | None = None
    n_records: int = 0
    first_id: str = ""

    @property
    def received_at(self) -> datetime:
        """When the door took the batch; also the event time of rows that name none."""
        return datetime.fromtimestamp(self.received_ms / 1000, UTC)

    def to_fields(self) -> dict[str, bytes]:
        """As the stream holds it."""
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

    @classmethod
    def from_fields(cls, entry_id: str, fields: Mapping[bytes, bytes]) -> Entry:
        """Read an entry; raises EntryError."""
        try:
            return cls(
                batch_id=fields[b"i"].decode(),
                model=fields[b"m"].decode(),
                generation=fields[b"g"].decode(),
                kind=_known(fields[b"k"].decode()),
                digest=fields[b"h"],
                received_ms=int(fields[b"t"]),
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
    def n_bytes(self) -> int:
        """What the entry weighs in the count of the backlog."""
        return fields_bytes({name.encode(): value for name, value in self.to_fields().items()})

    @property
    def record_bytes(self) -> int:
        """What the records that may come of it weigh, as far as can be told before they are written."""
        return _record_bytes(self.n_records, self.payload)


def fields_bytes(fields: Mapping[bytes, bytes]) -> int:
    """The weight of an entry's fields: the same for who appends it and who consumes it, readable or not."""
    return sum(len(name) + len(value) for name, value in fields.items())


def coming(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    """What an entry counts for in what is retained while it is on its way, readable or not."""
    told = fields.get(b"r", b"")
    n_records = int(told) if told.isdigit() else 0
    return {"coming": n_records, "coming_bytes": _record_bytes(n_records, fields.get(b"b", b""))}


def _record_bytes(n_records: int, payload: bytes) -> int:
    return n_records * FIELD_OVERHEAD_BYTES + len(payload) if n_records else 0


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise EntryError(f"the kind {kind!r} is not known")
    return kind


def delete_model(model: str, generation: str) -> Entry:
    """The entry that removes all that a deleted model has left."""
    payload = json.dumps(_DELETE_MODEL).encode()
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return Entry("", model, generation, CONTROL, b"", now_ms, payload)


def check_control(payload: bytes) -> None:
    """Raise EntryError unless a control entry asks for what this version can do: to delete the model, and nothing else."""
    try:
        order = json.loads(payload)
    except ValueError as error:
        raise EntryError(f"the control entry cannot be read: {error}") from error
    if order != _DELETE_MODEL:
        raise EntryError(f"the control operation is not known: {str(order)[:200]}")


def alarm_order(model: str, generation: str, order: Mapping[str, Any]) -> Entry:
    """The entry that has something done about a model's alarm."""
    payload = json.dumps(order, separators=(",", ":")).encode()
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return Entry("", model, generation, ALARM, b"", now_ms, payload)


def pack_labels(rows: Sequence[LabelRow]) -> bytes:
    """The payload of an entry of kind `labels`; the same rows give the same bytes."""
    plain = [[row.id, sorted(row.votes.items()), row.ratings] for row in rows]
    return json.dumps({"format": _FORMAT, "rows": plain}, separators=(",", ":")).encode()


def unpack_labels(payload: bytes) -> list[LabelRow]:
    """Read what `pack_labels` wrote; raises EntryError."""
    try:
        found = json.loads(payload)
        if found["format"] != _FORMAT:
            raise EntryError("the labels are not of a format that is known")
        return [
            LabelRow(
                str(name),
                {int(k): int(n) for k, n in votes},
                [(str(r), int(k), v) for r, k, v in ratings],
            )
            for name, votes, ratings in found["rows"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise EntryError(f"the labels cannot be read: {error}") from error


@dataclass(frozen=True)
class Update:
    """One histogram or pane sent by a client that has reduced its predictions itself.

    Attributes
    ----------
    packed : `calibrant.Histogram.pack()` or `calibrant.Pane.pack()`
    event_time_us : microseconds since the epoch; None for the histogram's own, else the time of receipt
    slices : key to value, None for the histogram's own; the update fills the slice of all rows and one of each pair
    source, epoch, sequence : given together for running totals (`mode: cumulative`), else None
    at : pointer to it in the body that brought it, None for the body itself
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


def pack_updates(updates: Sequence[Update]) -> bytes:
    """The payload of an entry of kind `histograms` or `pane`."""
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


def unpack_updates(payload: bytes) -> list[Update]:
    """Read what `pack_updates` wrote; raises EntryError."""
    try:
        magic, version, head_length = _HEAD.unpack_from(payload)
        if (magic, version) != (_MAGIC, _FORMAT):
            raise EntryError("the updates are not of a format that is known")
        at = _HEAD.size + head_length
        heads: list[dict[str, Any]] = json.loads(payload[_HEAD.size : at])
        updates = []
        for head in heads:
            length = head.pop("n")
            updates.append(Update(packed=payload[at : at + length], **head))
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
        raise EntryError("the updates do not end where they say")
    return updates
