"""Size of an Arrow IPC stream once it is decoded, from the heads of its messages: nothing is decompressed or allocated.

The decoder of Arrow believes the lengths that a stream states. A few forged bytes would make it allocate any amount of
memory, and a compressed buffer states its size itself. So the heads are read here first, and a stream is rejected by what it
states: its messages, columns, levels, rows and values, and the bytes of its buffers once decompressed. pyarrow divides the stream into
messages, and verifies that every offset of a head is inside of it.
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from calibrant.core.errors import Violation
from calibrant_server.service.http.problems import BodyTooLarge, MalformedBody

MAX_MESSAGES = 1_000  # each costs about a millisecond whatever it holds
MAX_FIELDS = 100  # columns, lists and slices together
MAX_BUFFERS = 1_000  # of one message; long texts may have several
MAX_DEPTH = 4  # a column, a list in it, its values, and one level for the decoder to reject
# What a value takes: a number 8 bytes as float64 or int64, a text an object of Python. What a dictionary has counts as text.
NUMBER_BYTES, TEXT_BYTES = 8, 64


@dataclass
class ArrowSizes:
    """What a stream states about itself; `widths` are bytes per value of each node of its record batches."""

    n_rows: int = 0
    n_bytes: int = 0
    widths: list[int] = field(default_factory=list)


class _Table:
    """One table of a head that pyarrow has verified: fields by their number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def _read(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self._data, at)[0])

    def _place(self, number: int) -> int | None:
        """Return the place of a field, None if it is absent."""
        fields = self._at - self._read("<i", self._at)
        slot = 4 + 2 * number
        offset = self._read("<H", fields + slot) if slot < self._read("<H", fields) else 0
        return self._at + offset if offset else None

    def int64(self, number: int) -> int:
        """Return a field of eight bytes, 0 if it is absent."""
        at = self._place(number)
        return 0 if at is None else self._read("<q", at)

    def table(self, number: int) -> _Table | None:
        """Return the table of a field, None if it is absent."""
        at = self._place(number)
        return None if at is None else _Table(self._data, at + self._read("<I", at))

    def pairs(self, number: int, most: int) -> list[tuple[int, int]]:
        """Return a vector of at most so many structs of two 64-bit integers."""
        at = self._place(number)
        if at is None:
            return []
        start = at + self._read("<I", at)
        n = self._read("<I", start)
        if n > most:
            _reject(f"a vector has more than {most} elements")
        found: list[Any] = list(struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * n]))  # fmt: skip
        return found


def arrow_sizes(data: bytes, max_rows: int, max_bytes: int) -> ArrowSizes:
    """Return the sizes of a stream.

    Raises
    ------
    MalformedBody
        It is no complete Arrow IPC stream, or of a type that no column has.
    BodyTooLarge
        It has more than `max_rows` rows, takes more than `max_bytes`, or has too many messages or columns.
    """
    import pyarrow as pa

    sizes = ArrowSizes()
    try:
        for number, message in enumerate(_messages(data)):
            if number >= MAX_MESSAGES:
                raise BodyTooLarge(
                    f"Received more than {MAX_MESSAGES} Arrow messages; expected at most {MAX_MESSAGES}. Send larger "
                    "record batches, or several requests."
                )
            _add(sizes, number, message, max_bytes)
            _bound(sizes, max_rows, max_bytes)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        _reject(str(error)[:200])
    return sizes


def _messages(data: bytes) -> Iterator[Any]:
    """Yield the messages. The stream must have its end, or rows could be missing without a trace."""
    import pyarrow as pa

    source = pa.BufferReader(data)
    reader, at = pa.ipc.MessageReader.open_stream(source), 0
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            break
        yield message
        at = source.tell()
    if source.tell() == at:
        _reject("the stream has no end; close its writer before sending it")
    if source.tell() < len(data):
        _reject("bytes follow the end of the stream")


def _add(sizes: ArrowSizes, number: int, message: Any, max_bytes: int) -> None:
    import pyarrow as pa

    head, kind = message.metadata.to_pybytes(), message.type
    content = _Table(head, int.from_bytes(head[:4], "little")).table(2)
    if content is None or (kind == "schema") != (number == 0):
        _reject("the stream does not begin with its one schema")
    if kind == "schema":
        sizes.widths = [*_widths(pa.ipc.read_schema(message))]
    elif kind == "record batch":
        sizes.n_rows += max(0, content.int64(0))
        sizes.n_bytes += _batch_bytes(content, sizes.widths, message.body, max_bytes)
    elif kind == "dictionary" and (batch := content.table(1)) is not None:
        widths = [TEXT_BYTES] * len(batch.pairs(1, MAX_FIELDS))
        sizes.n_bytes += _batch_bytes(batch, widths, message.body, max_bytes)
    else:
        _reject("a message is neither a schema, a dictionary nor a record batch")


def _widths(schema: Any) -> Iterator[int]:
    """Yield the bytes per value of the columns of a schema, each followed by those of its lists and fields."""
    pending = [(each, 1) for each in reversed(schema)]
    n_fields = 0
    while pending:
        each, depth = pending.pop()
        n_fields += 1
        if n_fields > MAX_FIELDS or depth > MAX_DEPTH:
            raise BodyTooLarge(
                f"Received more than {MAX_FIELDS} Arrow columns, or more than {MAX_DEPTH} levels; expected at most these."
            )
        yield _width(each)
        pending += [(each.type.field(i), depth + 1) for i in reversed(range(each.type.num_fields))]


def _width(column: Any) -> int:
    """Return the bytes per value of a column; reject a type that no column has."""
    from pyarrow import types

    kind, name = column.type, column.name[:60]
    if types.is_dictionary(kind):
        return NUMBER_BYTES
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXT_BYTES
    plain = (types.is_null, types.is_integer, types.is_floating, types.is_boolean, types.is_timestamp)  # fmt: skip
    nested = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_struct)
    if not any(fits(kind) for fits in (*plain, *nested)):
        detail = f"Received another Arrow type for {name}; expected numbers, texts, times, or lists of them."
        raise MalformedBody(detail, errors=[Violation(f"/{name}", "arrow_type", detail)])
    return NUMBER_BYTES


def _batch_bytes(batch: _Table, widths: list[int], body: Any, max_bytes: int) -> int:
    """Return what the values of a batch take, with the buffers that are decompressed for them."""
    nodes = batch.pairs(1, MAX_FIELDS)
    if len(nodes) != len(widths):
        _reject("a batch has another number of columns than its schema")
    if any(n_values < 0 for n_values, _ in nodes):
        _reject("a column has a negative length")
    total = sum(n_values * width for (n_values, _), width in zip(nodes, widths, strict=True))
    if batch.table(3) is None:
        return total
    for offset, length in batch.pairs(2, MAX_BUFFERS):
        if not (offset >= 0 and (length == 0 or length >= 8) and offset + length <= len(body)):
            _reject("a buffer is outside its message")
        if not length:
            continue
        (stated,) = struct.unpack_from("<q", body, offset)
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
