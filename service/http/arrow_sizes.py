"""Size of an Arrow IPC stream once it is decoded, from the heads of its messages: nothing is decompressed or allocated.

The decoder of Arrow believes the lengths that a stream states. A few forged bytes would make it allocate any amount of
memory, and a compressed buffer states its size itself. So the heads are read here first, and a stream is rejected by what it
states: its messages, columns, levels, rows and values, and the bytes of its buffers once decompressed.
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from calibrant.core.errors import Violation
from calibrant_server.service.http.errors import BodyTooLarge, MalformedBody

_UINT16, _INT32, _UINT32, _INT64 = (struct.Struct(f"<{each}") for each in "HiIq")


class FlatbufferError(ValueError):
    """The bytes are no flatbuffer of the expected form."""


def _number(form: struct.Struct) -> Callable[[memoryview, int], int]:
    def read(data: memoryview, at: int) -> int:
        if not 0 <= at <= len(data) - form.size:
            raise FlatbufferError("an offset points outside the message")
        return int(form.unpack_from(data, at)[0])

    return read


_uint16, int32, uint32, int64 = map(_number, (_UINT16, _INT32, _UINT32, _INT64))


class FlatbufferTable:
    """One table of a flatbuffer: fields by their number, each with a default if it is absent."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - int32(data, at)
        self._size = _uint16(data, self._fields)

    @classmethod
    def root(cls, data: memoryview) -> FlatbufferTable:
        """Return the table at the root of a flatbuffer."""
        return cls(data, uint32(data, 0))

    def _place(self, number: int) -> int | None:
        """Return the place of a field, None if it is absent."""
        slot = 4 + 2 * number
        if slot + 2 > self._size:
            return None
        offset = _uint16(self._data, self._fields + slot)
        return self._at + offset if offset else None

    def byte(self, number: int) -> int:
        """Return a field of one byte, 0 if it is absent."""
        at = self._place(number)
        if at is None:
            return 0
        if not 0 <= at < len(self._data):
            raise FlatbufferError("a field is outside the message")
        return int(self._data[at])

    def int64(self, number: int) -> int:
        """Return a field of eight bytes, 0 if it is absent."""
        at = self._place(number)
        return 0 if at is None else int64(self._data, at)

    def table(self, number: int) -> FlatbufferTable | None:
        """Return the table of a field, None if it is absent."""
        at = self._place(number)
        return None if at is None else FlatbufferTable(self._data, at + uint32(self._data, at))

    def text(self, number: int) -> str:
        """Return the text of a field, empty if it is absent."""
        start, n = self.vector(number, 1)
        try:
            return bytes(self._data[start : start + n]).decode()
        except UnicodeDecodeError as error:
            raise FlatbufferError("a text is not UTF-8") from error

    def vector(self, number: int, size: int) -> tuple[int, int]:
        """Return where the elements of a vector start, and their number; all of them are inside the message."""
        at = self._place(number)
        if at is None:
            return 0, 0
        start = at + uint32(self._data, at)
        n = uint32(self._data, start)
        if start + 4 + n * size > len(self._data):
            raise FlatbufferError("a vector is longer than the message")
        return start + 4, n

    def pairs(self, number: int, most: int) -> list[tuple[int, int]]:
        """Return a vector of at most so many structs of two 64-bit integers."""
        start, n = self.vector(number, 16)
        if n > most:
            raise FlatbufferError(f"a vector has more than {most} elements")
        found: list[Any] = list(struct.iter_unpack("<qq", self._data[start : start + 16 * n]))
        return found

    def tables(self, number: int, most: int) -> list[FlatbufferTable]:
        """Return a vector of at most so many tables."""
        start, n = self.vector(number, 4)
        if n > most:
            raise FlatbufferError(f"a vector has more than {most} elements")
        places = range(start, start + 4 * n, 4)
        return [FlatbufferTable(self._data, at + uint32(self._data, at)) for at in places]


MAX_MESSAGES = 1_000  # each costs about a millisecond whatever it holds
MAX_FIELDS = 100  # columns, lists and slices together
MAX_BUFFERS = 1_000  # of one message; long texts may have several
MAX_DEPTH = 4  # a column, a list in it, its values, and one level for the decoder to reject
# What a value takes: a number 8 bytes as float64 or int64, a text an object of Python.
NUMBER_BYTES, TEXT_BYTES = 8, 64

_CONTINUES = 0xFFFFFFFF
_SCHEMA = 1
# Numbers of the types in the union of the format: Null, Int, FloatingPoint, Utf8, Bool, Timestamp, List, Struct,
# FixedSizeList, LargeUtf8, LargeList, Utf8View.
_TYPES = {1, 2, 3, 5, 6, 10, 12, 13, 16, 20, 21, 24}
_TEXTS = {5, 20, 24}


@dataclass
class ArrowSizes:
    """What a stream states about itself."""

    n_rows: int = 0
    n_bytes: int = 0
    # Bytes per value of each node of a record batch, and of the batches of each dictionary.
    records: list[int] = field(default_factory=list)
    dictionaries: dict[int, list[int]] = field(default_factory=dict)


def arrow_sizes(data: bytes, max_rows: int, max_bytes: int) -> ArrowSizes:
    """Return the sizes of a stream.

    Raises
    ------
    MalformedBody
        It is no complete Arrow IPC stream, or of a type that no column has.
    BodyTooLarge
        It has more than `max_rows` rows, takes more than `max_bytes`, or has too many messages or columns.
    """
    sizes = ArrowSizes()
    try:
        for number, (head, body) in enumerate(_messages(memoryview(data))):
            if number >= MAX_MESSAGES:
                raise BodyTooLarge(
                    f"Received more than {MAX_MESSAGES} Arrow messages; expected at most {MAX_MESSAGES}. Send larger "
                    "record batches, or several requests."
                )
            _add(sizes, number, head, body, max_bytes)
            _bound(sizes, max_rows, max_bytes)
    except FlatbufferError as error:
        _reject(str(error))
    return sizes


def _messages(data: memoryview) -> Iterator[tuple[FlatbufferTable, memoryview]]:
    """Yield head and body of each message. The stream must have its end, or rows could be missing without a trace."""
    at = 0
    while at < len(data):
        if uint32(data, at) != _CONTINUES:
            _reject("a message does not begin with the continuation marker")
        n_head = int32(data, at + 4)
        at += 8
        if n_head == 0:
            if at != len(data):
                _reject("bytes follow the end of the stream")
            return
        if not 0 < n_head <= len(data) - at:
            _reject("a message is longer than the stream")
        head = FlatbufferTable.root(data[at : at + n_head])
        at += n_head
        n_body = head.int64(3)
        if not 0 <= n_body <= len(data) - at:
            _reject("a body is longer than the stream")
        yield head, data[at : at + n_body]
        at += n_body
    _reject("the stream has no end; close its writer before sending it")


def _add(
    sizes: ArrowSizes, number: int, head: FlatbufferTable, body: memoryview, max_bytes: int
) -> None:
    kind, content = head.byte(1), head.table(2)
    if content is None or (kind == _SCHEMA) != (number == 0):
        _reject("the stream does not begin with its one schema")
    match kind:
        case 1:
            _add_fields(sizes, content, 1, sizes.records)
        case 2:
            data, widths = content.table(1), sizes.dictionaries.get(content.int64(0))
            if data is None or widths is None:
                _reject("a dictionary belongs to no column")
            sizes.n_bytes += _batch_bytes(data, widths, body, max_bytes)
        case 3:
            sizes.n_rows += max(0, content.int64(0))
            sizes.n_bytes += _batch_bytes(content, sizes.records, body, max_bytes)
        case _:
            _reject("a message is neither a schema, a dictionary nor a record batch")


def _add_fields(sizes: ArrowSizes, parent: FlatbufferTable, number: int, widths: list[int]) -> None:
    """Note the bytes per value of the fields of a schema or of another field, which have this number in it."""
    pending = [(each, 1, widths) for each in reversed(parent.tables(number, 10 * MAX_FIELDS))]
    n_fields = 0
    while pending:
        each, depth, widths = pending.pop()
        n_fields += 1
        if n_fields > MAX_FIELDS or depth > MAX_DEPTH:
            raise BodyTooLarge(
                f"Received more than {MAX_FIELDS} Arrow columns, or more than {MAX_DEPTH} levels; expected at most these."
            )
        kind, dictionary, name = each.byte(2), each.table(4), each.text(0)
        if kind not in _TYPES:
            name = name[:60]
            detail = f"Received another Arrow type for {name}; expected numbers, texts, times, or lists of them."
            raise MalformedBody(detail, errors=[Violation(f"/{name}", "arrow_type", detail)])
        if dictionary is not None:
            widths.append(NUMBER_BYTES)
            widths = []  # of an earlier column with the same dictionary, they are known
            sizes.dictionaries.setdefault(dictionary.int64(0), widths)
        widths.append(TEXT_BYTES if kind in _TEXTS else NUMBER_BYTES)
        pending += [
            (child, depth + 1, widths) for child in reversed(each.tables(5, 10 * MAX_FIELDS))
        ]


def _batch_bytes(
    batch: FlatbufferTable, widths: list[int], body: memoryview, max_bytes: int
) -> int:
    """Return what the values of a batch take, with the buffers that are decompressed for them."""
    nodes: list[tuple[int, int]] = batch.pairs(1, MAX_FIELDS)
    if len(nodes) != len(widths):
        _reject("a batch has another number of columns than its schema")
    if any(n_values < 0 for n_values, _ in nodes):
        _reject("a column has a negative length")
    total = sum(n_values * width for (n_values, _), width in zip(nodes, widths, strict=True))
    if batch.table(3) is None:
        return total
    for offset, length in batch.pairs(2, MAX_BUFFERS):
        if not (offset >= 0 and length >= 0 and offset + length <= len(body)):
            _reject("a buffer is outside its message")
        if not length:
            continue
        stated = int64(body[offset : offset + length], 0)
        if stated < -1:
            _reject("a compressed buffer states a negative size")
        total += length - 8 if stated == -1 else stated
        if total > max_bytes:
            break
    return total


def _bound(sizes: ArrowSizes, max_rows: int, max_bytes: int) -> None:
    if sizes.n_rows > max_rows:
        raise BodyTooLarge(
            f"Received {sizes.n_rows} rows; expected at most {max_rows}. Send several batches."
        )
    if sizes.n_bytes > max_bytes:
        raise BodyTooLarge(
            f"Received an Arrow stream that takes more than {max_bytes} bytes when decoded ({NUMBER_BYTES} per number, "
            f"{TEXT_BYTES} per text); expected at most {max_bytes}. Send several batches."
        )


def _reject(reason: str) -> NoReturn:
    detail = f"Received a body that is not an Arrow IPC stream: {reason}."
    raise MalformedBody(detail, errors=[Violation("", "arrow", detail)])
