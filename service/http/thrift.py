"""Reader of Thrift's compact protocol, the format of the heads in Parquet files, for sizes that are checked before a file is decoded.

Every access is checked and the number of values bounded, so that a forged head raises `ThriftError` and nothing else.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
MAX_DEPTH = 12
Struct = dict[int, Any]


class ThriftError(ValueError):
    """The bytes are no struct of the expected form."""


class ThriftReader:
    """Structs of the compact protocol, as dicts by field number.

    Parameters
    ----------
    data : bytes that hold the structs
    at : where the first one begins
    max_values : number of values that may be read in all
    """

    def __init__(self, data: memoryview, at: int, max_values: int) -> None:
        self._data, self.at, self._left = data, at, max_values

    def struct(self, depth: int = 0) -> Struct:
        """Return the next struct."""
        if depth > MAX_DEPTH:
            raise ThriftError("structs are nested too deeply")
        found: Struct = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ThriftError("the head holds too many values")
        if kind in _INTEGERS:
            return self._integer()
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15, depth + 1) for _ in self._counted(size)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _MAP:
            size = self._varint()
            kinds = self._byte() if size else 0
            return [
                (self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1))
                for _ in self._counted(size)
            ]
        raise ThriftError("a field has an unknown type")

    def _counted(self, size: int) -> range:
        if size > self._left:
            raise ThriftError("the head holds too many values")
        return range(size)

    def _byte(self) -> int:
        if not 0 <= self.at < len(self._data):
            raise ThriftError("a head is longer than the file")
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise ThriftError("a text is longer than the file")
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ThriftError("a number has more than 64 bits")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
