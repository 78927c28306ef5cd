"""Reader of flatbuffers, the format of the heads of Arrow messages, for sizes that are checked before a stream is decoded.

Every access is checked, so that a forged head raises `FlatbufferError` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

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
