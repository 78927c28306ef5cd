"""Numbered messages of a stream as the rows of one request, without any transport.

A request holds the messages `[from, to)` of its source. Messages that cannot be read have no rows in it, but their numbers are in its
range: the next request begins after them. Each is returned with its number, its rule and the reason. The service checks the rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from calibrant.client.operations import Operation, batch, time_text
from calibrant.client.results import Receipt

# The messages of one request, at most.
MAX_MESSAGES, MAX_BYTES = 5000, 4 << 20
MAX_DETAIL = 300
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
POINTER = re.compile(r"/predictions/(\d+)\b")

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
    rule : `unreadable`, or the rule of the service that is broken
    """

    offset: int
    record: int | None
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class Row:
    """A record as JSON, with the number of its message and its position in it.

    Attributes
    ----------
    fields : names of its fields and slices, which are the same in all rows of a request
    """

    offset: int
    record: int
    fields: frozenset[str]
    text: str


@dataclass(frozen=True)
class MessageRange:
    """Rows of one request, and what it leaves out.

    Attributes
    ----------
    end : the number after the last message
    n_messages : messages in the range
    rejected : messages that could not be read
    """

    end: int
    n_messages: int
    rows: tuple[Row, ...]
    rejected: tuple[RejectedMessage, ...]

    def request(self, model: str, source: str, first: int) -> Operation[Receipt]:
        """Return the request that sends the messages from `first` on. The service rejects single rows."""
        origin = f'"source":{json.dumps(source)},"offsets":[{first},{self.end}]'
        rows = ",".join(each.text for each in self.rows)
        body = f'{{{origin},"predictions":[{rows}]}}'
        return batch(model, "predictions", body.encode(), partial=True)

    def rejected_by(self, receipt: Receipt) -> list[RejectedMessage]:
        """Return the records that the service did not accept."""
        return [self._rejected(each) for each in receipt.to_dict()["errors"]]

    def _rejected(self, error: Mapping[str, str]) -> RejectedMessage:
        place = POINTER.match(error["pointer"])
        assert place is not None
        row = self.rows[int(place[1])]
        detail = f"{error['pointer']}: {error['detail']}"[:MAX_DETAIL]
        return RejectedMessage(row.offset, row.record, error["rule"], detail)


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


def range_of(messages: Sequence[Message], decode: Decode = read_records) -> MessageRange:
    """Read the first messages: those whose records have the same fields, as the rows of one request must.

    Parameters
    ----------
    messages : at least one, in the order of their numbers
    decode : reads the records of a message; a ValueError, TypeError, KeyError or LookupError rejects the message
    """
    rows: list[Row] = []
    rejected: list[RejectedMessage] = []
    n_messages = n_bytes = 0
    for message in messages:
        found = _rows_of(message, decode)
        n_bytes += message.n_bytes
        if isinstance(found, RejectedMessage):
            rejected.append(found)
        elif n_messages and (n_bytes > MAX_BYTES or not _are_alike(rows, found)):
            break
        else:
            rows += found
        n_messages += 1
    end = messages[n_messages - 1].offset + 1
    return MessageRange(end, n_messages, tuple(rows), tuple(rejected))


def _rows_of(message: Message, decode: Decode) -> list[Row] | RejectedMessage:
    try:
        return [_row(message, number, each) for number, each in enumerate(decode(message))]
    except UNREADABLE as error:
        text = f"{type(error).__name__}: {error}"[:MAX_DETAIL]
        return RejectedMessage(message.offset, None, "unreadable", text)


def _row(message: Message, number: int, record: Record) -> Row:
    if not isinstance(record, Mapping):
        raise TypeError(f"received {type(record).__name__}; expected an object per record")
    found = {name: value for name, value in record.items() if value is not None}
    if found.keys().isdisjoint(("event_time", "event_times")):
        found["event_time"] = _time(message)
    text = json.dumps(found, allow_nan=False)
    return Row(message.offset, number, _fields(found), text)


def _time(message: Message) -> str:
    if message.time_ms is None:
        raise ValueError("received neither event_time nor a time of the message")
    return time_text(EPOCH + timedelta(milliseconds=message.time_ms))


def _fields(record: Record) -> frozenset[str]:
    """Return the names of fields and slices, but a label: it alone may be missing in some rows."""
    slices = record.get("slice")
    keys = {f"slice/{key}" for key in slices} if isinstance(slices, Mapping) else set()
    return frozenset((record.keys() | keys) - {"label"})


def _are_alike(rows: Sequence[Row], others: Sequence[Row]) -> bool:
    return not rows or not others or rows[-1].fields == others[0].fields
