"""Numbered messages of a stream to the panes of one request, without any transport.

A request holds the messages `[from, to)` of its source. Messages that cannot be used have no rows in it, but their numbers are in its
range: the next request begins after them. Each is returned with its number, its rule and the reason.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from calibrant.client.numbered_panes import MAX_BYTES, MAX_PANES
from calibrant.client.operations import time_text
from calibrant.client.reduction import spec_of
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.core.panes_by_key import Key, PanesByKey, duration_seconds, panes_of_batch
from calibrant.core.routing import MICROSECONDS
from calibrant.core.spec import PaneSpec

# Messages that are checked together. A wrong one is found by checking halves.
MESSAGES_TOGETHER = 500
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A field of a record, and the column that it becomes.
COLUMNS = {
    "probabilities": "probabilities", "logits": "logits", "confidence": "confidences", "confidences": "confidences",
    "label": "labels", "labels": "labels", "label_counts": "label_counts", "id": "ids", "unit": "units", "case": "cases",
    "event_time": "event_times", "weight": "weights",
}  # fmt: skip

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes
    ----------
    offset : its number in the source
    time_ms : when it was written, milliseconds since 1970: the event time of records without one; None if not known
    """

    offset: int
    value: bytes | None
    time_ms: int | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def n_bytes(self) -> int:
        """Bytes that it takes while it waits, with its Python objects."""
        return 400 + len(self.value or b"") + len(self.key or b"")


@dataclass(frozen=True)
class RejectedMessage:
    """A message, or one of its records, that is not counted.

    Attributes
    ----------
    record : position of the record in the message, None for all of the message
    rule : `no_label`, or the rule that is broken
    """

    offset: int
    record: int | None
    rule: str
    detail: str


@dataclass(frozen=True)
class Target:
    """What a model of the service requires of panes."""

    spec: PaneSpec
    pane_s: int
    class_names: Sequence[str] | None
    slices: Mapping[str, Sequence[str] | None]

    @classmethod
    def of(cls, model: dict[str, Any]) -> Target:
        """Read the definition of a model, as the service returns it."""
        classes = model["classes"] if isinstance(model["classes"], list) else None
        pane_s = duration_seconds(model["pane"])
        return cls(spec_of(model), pane_s, classes, dict(model.get("slices") or {}))


@dataclass(frozen=True)
class MessageRange:
    """Panes of one request, and what it leaves out.

    Attributes
    ----------
    end : the number after the last message
    n_messages, n_rows : messages in the range, and rows in the panes
    """

    end: int
    n_messages: int
    n_rows: int
    panes: tuple[tuple[Key, bytes], ...]
    rejected: tuple[RejectedMessage, ...]


Decode = Callable[[Message], Sequence[Record]]


def read_records(message: Message) -> Sequence[Record]:
    """Return the records of a message in JSON: an object, a list of objects, or `{"predictions": [...]}`.

    A message without content (the tombstone of a compacted topic) has no records.

    >>> read_records(Message(7, b'{"confidence": 0.8, "label": 1}'))
    [{'confidence': 0.8, 'label': 1}]
    """
    if not message.value:
        return []
    found = json.loads(message.value)
    if isinstance(found, dict) and found.keys() == {"predictions"}:
        found = found["predictions"]
    return found if isinstance(found, list) else [found]


def range_of(
    messages: Sequence[Message], target: Target, decode: Decode = read_records
) -> MessageRange:
    """Fill the first messages into panes: as many messages as one request can hold.

    Parameters
    ----------
    messages : at least one, in the order of their numbers
    target : what the panes must be
    decode : reads the records of a message; a ValueError, TypeError, KeyError or LookupError rejects the message
    """
    found = _Range(target)
    waiting = deque(_parts(messages, MESSAGES_TOGETHER))
    while waiting:
        part = waiting.popleft()
        rows = _rows(part, target, decode)
        if found.has_room_for(rows):
            found.add(part, rows)
        elif len(part) > 1:
            waiting.extendleft(reversed(list(_parts(part, -(-len(part) // 2)))))
        elif found.n_messages:
            break
        else:
            found.add(part, _without_rows(part[0], len(rows.keys)))
    panes = found.filled()
    if sum(len(packed) for _, packed in panes) > MAX_BYTES and found.n_messages > 1:
        return range_of(messages[: found.n_messages // 2], target, decode)
    return MessageRange(found.end, found.n_messages, found.n_rows, panes, tuple(found.rejected))


@dataclass
class _Rows:
    """Valid rows of some messages, the panes that they fill, and what was rejected."""

    batches: list[Batch] = field(default_factory=list)
    keys: set[tuple[Any, ...]] = field(default_factory=set)
    rejected: list[RejectedMessage] = field(default_factory=list)


class _Range:
    """Rows of the messages of one request."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._batches: list[Batch] = []
        self._keys: set[tuple[Any, ...]] = set()
        self.rejected: list[RejectedMessage] = []
        self.end = self.n_messages = 0

    def has_room_for(self, rows: _Rows) -> bool:
        """Return whether one request can hold the panes of these rows, too."""
        return sum(map(len, self._keys | rows.keys)) <= MAX_PANES

    def add(self, part: Sequence[Message], rows: _Rows) -> None:
        self._batches += rows.batches
        self._keys |= rows.keys
        self.rejected += sorted(rows.rejected, key=lambda each: (each.offset, each.record or 0))
        self.n_messages += len(part)
        self.end = part[-1].offset + 1

    @property
    def n_rows(self) -> int:
        return sum(each.n for each in self._batches)

    def filled(self) -> tuple[tuple[Key, bytes], ...]:
        """Return the panes, filled from all rows of a form at once, so that units in several messages stay complete."""
        by_shape: dict[Any, list[Batch]] = {}
        for each in self._batches:
            by_shape.setdefault(each.shape_key, []).append(each)
        panes = PanesByKey()
        for several in by_shape.values():
            batch = several[0] if len(several) == 1 else Batch.concatenate(several)
            panes.merge(panes_of_batch(batch, self._target.spec, self._target.pane_s, combine=True))
        return tuple((key, pane.to_bytes()) for key, pane in sorted(panes.items()))


def _parts(messages: Sequence[Message], size: int) -> Iterator[Sequence[Message]]:
    for start in range(0, len(messages), size):
        yield messages[start : start + size]


def _without_rows(message: Message, n_panes: int) -> _Rows:
    detail = f"Received rows of {n_panes} times and slices in one message; expected at most {MAX_PANES} panes. Send smaller messages."
    return _Rows(rejected=[RejectedMessage(message.offset, None, "too_many_panes", detail)])


@dataclass(frozen=True)
class _Placed:
    """A record as columns, with its place."""

    offset: int
    record: int
    columns: dict[str, Any]
    slices: dict[str, Any]

    @property
    def form(self) -> tuple[Any, ...]:
        """Records of one form fit in one batch."""
        scores = next(
            (v for k, v in self.columns.items() if k in ("probabilities", "logits")), None
        )
        n_classes = len(scores) if isinstance(scores, list) else 0
        return (n_classes, *sorted(self.columns), *sorted(f"/{key}" for key in self.slices))

    def rejected(self, rule: str, detail: str) -> RejectedMessage:
        return RejectedMessage(self.offset, self.record, rule, detail)


def _rows(messages: Sequence[Message], target: Target, decode: Decode) -> _Rows:
    """Return the rows of messages. What is invalid is rejected alone."""
    found = _Rows()
    forms: dict[tuple[Any, ...], list[_Placed]] = {}
    for message in messages:
        try:
            records = [
                _placed(message, number, record, target)
                for number, record in enumerate(decode(message))
            ]
        except CalibrationInputError as error:
            found.rejected.append(_of_error(message.offset, None, error))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            text = f"{type(error).__name__}: {error}"[:300]
            found.rejected.append(RejectedMessage(message.offset, None, "unreadable", text))
        else:
            for each in records:
                forms.setdefault(each.form, []).append(each)
    for several in forms.values():
        _check(several, target, found)
    return found


def _placed(message: Message, number: int, record: Record, target: Target) -> _Placed:
    if not isinstance(record, Mapping):
        raise TypeError(f"received {type(record).__name__}; expected an object per record")
    columns: dict[str, Any] = {}
    for name, value in record.items():
        if name != "slice" and name not in COLUMNS:
            raise ValueError(
                f"received field {str(name)[:60]!r}; expected one of {', '.join(COLUMNS)}, slice"
            )
        if name != "slice" and value is not None:
            columns[COLUMNS[name]] = value
    if isinstance(columns.get("probabilities"), int | float) and target.spec.n_classes == 2:
        columns["confidences"] = columns.pop("probabilities")
    if "event_times" not in columns:
        if message.time_ms is None:
            raise ValueError("received neither event_time nor a time of the message")
        columns["event_times"] = time_text(EPOCH + timedelta(milliseconds=message.time_ms))
    slices = record.get("slice") or {}
    if not isinstance(slices, Mapping):
        raise TypeError(f"received slice {type(slices).__name__}; expected an object")
    _reject_undeclared(slices, target)
    if "label_counts" not in columns:
        columns.setdefault("labels", None)
    return _Placed(message.offset, number, columns, dict(slices))


def _reject_undeclared(slices: Mapping[str, Any], target: Target) -> None:
    """Reject a slice that the service would reject, and with it every other row of the request."""
    for key, value in slices.items() if target.slices else ():
        allowed = target.slices.get(key, ())
        if allowed is not None and value not in allowed:
            detail = f"Received {key}:{value}; the model does not declare it."
            raise CalibrationInputError.at(f"/slice/{key}", "undeclared_slice", detail[:300])


def _check(records: Sequence[_Placed], target: Target, found: _Rows) -> None:
    """Add the valid rows of records of one form."""
    columns: dict[str, Any] = {
        name: [each.columns[name] for each in records] for name in records[0].columns
    }
    if records[0].slices:
        keys = records[0].slices
        columns["slices"] = {key: [each.slices[key] for each in records] for key in keys}
    try:
        checked = Batch.from_columns(
            columns, task=target.spec.task, n_classes=target.spec.n_classes,
            class_names=target.class_names, partial=True,
        )  # fmt: skip
    except CalibrationInputError as error:
        # It concerns all rows, such as lists of different lengths: the wrong record is in one of the halves.
        if len(records) == 1:
            found.rejected.append(_of_error(records[0].offset, records[0].record, error))
            return
        middle = len(records) // 2
        _check(records[:middle], target, found)
        _check(records[middle:], target, found)
        return
    broken = {int(each.pointer.rpartition("/")[2]): each for each in checked.violations}
    for row in np.setdiff1d(np.arange(checked.n_rows), checked.accepted_rows).tolist():
        each = broken.get(row)
        rule, detail = ("invalid", "") if each is None else (each.rule, each.detail)
        found.rejected.append(records[row].rejected(rule, detail))
    is_labelled = checked.batch.row_total > 0
    for row in checked.accepted_rows[~is_labelled].tolist():
        detail = "Received no label; no label can be added to a pane later."
        found.rejected.append(records[row].rejected("no_label", detail))
    if is_labelled.any():
        batch = checked.batch.take(np.flatnonzero(is_labelled))
        found.batches.append(batch)
        found.keys |= _keys(batch, target.pane_s)


def _keys(batch: Batch, pane_s: int) -> set[tuple[Any, ...]]:
    """Return start and slice values of each pane; as many members as panes of the service that it touches."""
    assert batch.event_times is not None
    slices = sorted((batch.slices or {}).items())
    starts = (batch.event_times // (pane_s * MICROSECONDS)).tolist()
    named = [[f"{key}:{value}" for value in column] for key, column in slices]
    return set(zip(starts, *named, strict=True))


def _of_error(offset: int, record: int | None, error: CalibrationInputError) -> RejectedMessage:
    first = error.violations[0]
    return RejectedMessage(offset, record, first.rule, f"{first.pointer}: {first.detail}"[:300])
