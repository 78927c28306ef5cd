"""Header of packed arrays: their names, shapes and types, and where each is in the content of the frame."""

from __future__ import annotations

import json
import marshal
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from calibrant.core.documents import Header
from calibrant.core.frames import MAX_CONTENT, PackingError

# Headers that are remembered: of this length at most, about 3 MB with what was read of them.
MAX_KNOWN_HEADER, KNOWN_HEADERS = 1 << 10, 512
_MAX_SIDES = 4
WIDTHS = (np.dtype("<i1"), np.dtype("<i2"), np.dtype("<i4"), np.dtype("<i8"))
DTYPES: dict[str, np.dtype[Any]] = {
    "i": np.dtype("<i8"),
    "f": np.dtype("<f8"),
    "g": np.dtype("<f4"),
    "u": np.dtype("<u8"),
    "b": np.dtype("u1"),
}
_INTEGERS = {width.str: width for width in WIDTHS}
# Allowed storage types of each kind; `pack` writes no others.
_STORED = {kind: {dtype.str: dtype} for kind, dtype in DTYPES.items()}
_STORED["i"] |= _INTEGERS
_STORED["f"] |= _INTEGERS


class Column(NamedTuple):
    """Place of one array in the content of a frame.

    Attributes
    ----------
    dtype, stored_as : in memory, and in the frame
    n : number of values
    start : of its bytes in the content
    same_as : number of the earlier array that it equals; -1: it has its own bytes
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored_as: np.dtype[Any]
    n: int
    start: int
    same_as: int


class Layout(NamedTuple):
    """Arrays of a frame, as a header describes them.

    Attributes
    ----------
    columns : in the order of the frame
    content : bytes of all arrays in memory
    length : bytes of the content of the frame
    about : the description, as `marshal` writes it: each caller receives a copy
    """

    columns: tuple[Column, ...]
    content: int
    length: int
    about: bytes

    @property
    def described(self) -> Header:
        """The description, as a copy."""
        found: Header = marshal.loads(self.about)
        return found


def layout_of(text: bytes) -> Layout:
    """Return what a header describes; headers of small arrays are alike, and reading one takes as long as its arrays."""
    return _known_layout(text) if len(text) <= MAX_KNOWN_HEADER else _read_layout(text)


def _read_layout(text: bytes) -> Layout:
    header = json.loads(text)
    about, listed = header["about"], header["arrays"]
    if not isinstance(about, dict):
        raise PackingError("the description is not an object")
    columns: list[Column] = []
    names: set[str] = set()
    content = length = 0
    for name, kind, shape, code in listed:
        if not isinstance(name, str) or name in names:
            raise PackingError("an array has no name of its own")
        names.add(name)
        n, start, same_as = _volume(shape), length, -1
        if type(code) is int:
            if not 0 <= code < len(columns):
                raise PackingError("an array refers to one that does not come before it")
            same_as, stored_as = code, _stored(kind, columns[code].stored_as.str)
            if columns[code].n != n:
                raise PackingError("an array refers to one of another length")
        else:
            stored_as = _stored(kind, code)
            length += n * stored_as.itemsize
        content += n * DTYPES[kind].itemsize
        columns.append(Column(name, tuple(shape), DTYPES[kind], stored_as, n, start, same_as))
    return Layout(tuple(columns), content, length, marshal.dumps(about))


_known_layout = lru_cache(maxsize=KNOWN_HEADERS)(_read_layout)


def _stored(kind: str, code: Any) -> np.dtype[Any]:
    if not isinstance(code, str) or code not in _STORED[kind]:
        raise PackingError(f"{str(code)[:20]!r} is not a width of kind {kind}")
    return _STORED[kind][code]


def _volume(shape: list[int]) -> int:
    if not isinstance(shape, list) or len(shape) > _MAX_SIDES:
        raise PackingError("an array has no valid shape")
    volume = 1
    for side in shape:
        if type(side) is not int or not 0 <= side <= MAX_CONTENT:
            raise PackingError("an array has no valid shape")
        volume *= side
    return volume
