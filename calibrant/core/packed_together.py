"""Arrays of the same names in several packed bytes, read together and concatenated.

A window has hundreds of small packed objects with a dozen arrays each, and numpy takes as long for a short array as for a long one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import (
    KNOWN_HEADERS,
    MAX_KNOWN_HEADER,
    Layout,
    Opened,
    PackingError,
    layout_of,
    read_arrays,
)
from calibrant.kernel.packed_arrays import AS_STORED, INTEGERS, WHOLE_NUMBERS, read_packed

Ints = NDArray[np.int64]
_WORD = 8


class _Table(NamedTuple):
    """Arrays of a header.

    Attributes
    ----------
    names : name and type in memory of each
    columns : int64 (n_arrays, 5): number of values, bytes of a stored one, how they become those in memory, place in the
        content, bytes of a value in memory
    """

    names: tuple[tuple[str, np.dtype[Any]], ...]
    columns: Ints


def arrays_together(several: Sequence[Opened]) -> dict[str, NDArray[Any]]:
    """Return every array, concatenated over those that have it, in their order; with one dimension.

    Raises
    ------
    PackingError
        Arrays of a name have different types.
    """
    numbers: dict[tuple[str, np.dtype[Any]], int] = {}
    tables = [_table(each) for each in several]
    number = np.array(
        [numbers.setdefault(name, len(numbers)) for each in tables for name in each.names], np.int64
    )
    if len({name for name, _ in numbers}) < len(numbers):
        raise PackingError("arrays of a name have different types")
    lengths = np.array([len(each.body) for each in several], np.int64)
    rows = np.concatenate([np.zeros((0, 5), np.int64), *(each.columns for each in tables)])
    rows[:, 3] += np.repeat(np.cumsum(lengths) - lengths, [len(each.names) for each in tables])
    sizes = rows[:, 0] * rows[:, 4]
    starts = _starts(number, sizes, len(numbers))
    values = np.empty(int(starts[1][-1]), np.uint8)
    rows[:, 4] = starts[0]
    if not read_packed(b"".join([each.body for each in several]), rows, values):
        return _concatenated(several, numbers)
    totals = np.bincount(number, sizes, len(numbers)).astype(np.int64).tolist()
    return {
        name: values[start : start + total].view(dtype)
        for (name, dtype), start, total in zip(numbers, starts[1].tolist(), totals, strict=False)
    }


def _starts(number: Ints, sizes: Ints, n: int) -> tuple[Ints, Ints]:
    """Return where each array starts if those of a number follow each other, and where those of each number start, and the end."""
    totals = np.bincount(number, sizes, n).astype(np.int64)
    ends = np.cumsum(-(-totals // _WORD) * _WORD)
    firsts = np.concatenate([np.zeros(1, np.int64), ends])
    order = np.argsort(number, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    places = np.empty(len(number), np.int64)
    places[order] = before + (firsts[:-1] - (np.cumsum(totals) - totals))[number[order]]
    return places, firsts


def _table(packed: Opened) -> _Table:
    return (
        _known_table(packed.text) if len(packed.text) <= MAX_KNOWN_HEADER else _read(packed.layout)
    )


@lru_cache(maxsize=KNOWN_HEADERS)
def _known_table(text: bytes) -> _Table:
    return _read(layout_of(text))


def _read(layout: Layout) -> _Table:
    starts: list[int] = []
    rows = np.zeros((len(layout.columns), 5), np.int64)
    for row, column in zip(rows, layout.columns, strict=True):
        starts.append(starts[column.same_as] if column.same_as >= 0 else column.start)
        kind = AS_STORED
        if column.stored_as != column.dtype:
            kind = INTEGERS if column.dtype.kind == "i" else WHOLE_NUMBERS
        row[:] = column.n, column.stored_as.itemsize, kind, starts[-1], column.dtype.itemsize
    return _Table(tuple((each.name, each.dtype) for each in layout.columns), rows)


def _concatenated(
    several: Sequence[Opened], names: dict[tuple[str, np.dtype[Any]], int]
) -> dict[str, NDArray[Any]]:
    """Return what `arrays_together` returns, by numpy."""
    read = [read_arrays(each.layout, each.body) for each in several]
    return {
        name: np.concatenate([each[name].reshape(-1) for each in read if name in each])
        for name, _ in names
    }
