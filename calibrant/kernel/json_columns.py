"""Columns of numbers of a JSON object, or of lines of one each, as arrays, without a Python object per number."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library

MAX_MEMBERS = 64
_MIN_POWER, _MAX_POWER = -342, 308
_BITS = 128
# Kinds of members, in the order of `json_reader.h`.
OTHER, NUMBERS, NUMBER_ROWS, INTEGERS, INTEGER_ROWS, RAGGED_ROWS = range(6)


class Member(NamedTuple):
    """One member of the object, or of all lines.

    Attributes
    ----------
    name : str
    text : the member of an object as it was sent, where no column was read
    column : float64 or int64 (n,) or (n, width); None where no column was read
    ends : int64 (n,), where the lists of a column end that have several lengths; the column is then flat
    """

    name: str
    text: bytes
    column: NDArray[Any] | None
    ends: NDArray[np.int64] | None


class Document(NamedTuple):
    """Members in the order of the text, and the number of lists in the columns."""

    members: list[Member]
    n_lists: int


class Lines(NamedTuple):
    """Members of lines of one form, the number of lines, and the number of lists in the columns.

    Attributes
    ----------
    rest : the other members of each line, as a list of objects; empty without any
    """

    members: list[Member]
    n: int
    n_lists: int
    rest: bytes


def read(data: bytes) -> Document | None:
    """Return the members of a JSON object, with its plain columns of numbers as arrays.

    Numbers are those of a parser that rounds correctly.

    Returns
    -------
    None where the text is not an object, or a column is not plain
    """
    found = library()
    text = _Text(data, found)
    if not found.calibrant_kernel_json(ctypes.byref(text.structure)):
        return None
    return Document(text.members, text.structure.n_lists)


def read_lines(data: bytes) -> Lines | None:
    """Return the members of JSON objects, one a line, with their plain columns of numbers as arrays.

    Returns
    -------
    None where the lines differ in their members, or a column is not plain
    """
    found = library()
    text = _Text(data, found)
    rest = np.empty(len(data) + 2 * text.structure.n_lines + 2, np.uint8)
    text.structure.rest = rest.ctypes.data
    n = found.calibrant_kernel_json_lines(ctypes.byref(text.structure))
    if not n:
        return None
    copied = rest[: text.structure.n_rest].tobytes()
    joined = b"[" + copied[:-1] + b"]" if copied else b""
    return Lines(text.members, n, text.structure.n_lists, joined)


class _Text:
    """A text, and the arrays that the kernel reads it to."""

    def __init__(self, data: bytes, kernel: ctypes.CDLL) -> None:
        self._data = data
        self._members = (structures()["JsonMember"] * MAX_MEMBERS)()
        self.structure: Any = structures()["JsonText"](
            data, len(data), powers_of_five().ctypes.data
        )
        kernel.calibrant_kernel_json_size(ctypes.byref(self.structure))
        self._values = np.empty(self.structure.max_values)
        self._ends = np.empty(self.structure.max_ends, np.int64)
        self.structure.values, self.structure.ends = (
            self._values.ctypes.data,
            self._ends.ctypes.data,
        )
        self.structure.members = ctypes.addressof(self._members)
        self.structure.max_members = MAX_MEMBERS

    @property
    def members(self) -> list[Member]:
        """The members as they were read."""
        read = self._members[: self.structure.n_members]
        return [_member(self._data, self._values, self._ends, each) for each in read]


def _member(data: bytes, values: NDArray[np.float64], ends: NDArray[np.int64], at: Any) -> Member:
    name = data[at.name + 1 : at.name_end - 1].decode(errors="replace")
    if at.kind == OTHER:
        return Member(name, data[at.name : at.value_end], None, None)
    own_ends = ends[at.first_end : at.first_end + at.n] if at.kind == RAGGED_ROWS else None
    n = at.n if own_ends is None else int(own_ends[-1])
    column = values[at.first : at.first + n * max(at.width if own_ends is None else 1, 1)]
    if at.kind in (INTEGERS, INTEGER_ROWS, RAGGED_ROWS):
        column = column.view(np.int64)
    if at.kind in (NUMBER_ROWS, INTEGER_ROWS):
        column = column.reshape(at.n, at.width)
    return Member(name, b"", column, own_ends)


@lru_cache(maxsize=1)
def powers_of_five() -> NDArray[np.uint64]:
    """Return the leading 128 bits of powers of five, those of negative ones rounded up; uint64 (n, 2), high half first."""
    found = []
    for power in range(_MIN_POWER, _MAX_POWER + 1):
        five = 5 ** abs(power)
        if power < 0:
            size = (five - 1).bit_length()
            five = (1 << (size + _BITS - 1 if power >= -27 else 2 * size + _BITS)) // five + 1
        excess = five.bit_length() - _BITS
        five = five >> excess if excess > 0 else five << -excess
        found.append((five >> 64, five & (1 << 64) - 1))
    return np.array(found, np.uint64)
