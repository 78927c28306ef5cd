"""Ragged columns: pieces of different lengths in one array, and the index arithmetic that reads and joins them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def places(starts: Ints, lengths: Ints) -> Ints:
    """Return the index of every element of some pieces, one piece after the other.

    >>> places(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def owners(lengths: Ints) -> Ints:
    """Return the number of the piece of every element.

    >>> owners(np.array([2, 0, 1])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(lengths)), lengths)


def starts_of(lengths: Ints) -> Ints:
    """Return where each piece begins if all are concatenated.

    >>> starts_of(np.array([2, 0, 1])).tolist()
    [0, 2, 2]
    """
    starts: Ints = np.cumsum(lengths) - lengths
    return starts


def table_at(data: Bytes, starts: Ints, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the structures or numbers that begin at some bytes.

    Raises
    ------
    IndexError
        A structure exceeds the bytes.
    """
    return _at_every_byte(data, dtype.itemsize)[starts].view(dtype)


def put_table(data: Bytes, starts: Ints, table: NDArray[Any]) -> None:
    """Write the rows of a table to where they begin; none of them overlap."""
    rows = np.ascontiguousarray(table)
    size = rows.dtype.itemsize * (rows.shape[1] if rows.ndim > 1 else 1)
    if size:
        _at_every_byte(data, size)[starts] = rows.view(f"V{size}").reshape(-1)


def _at_every_byte(data: Bytes, size: int) -> NDArray[np.void]:
    """Return the `size` bytes that begin at each byte: numpy copies them as one, ten times as fast as byte by byte."""
    n = max(len(data) - size + 1, 0)
    return np.ndarray(n, f"V{size}", np.ascontiguousarray(data), strides=(1,))


def joined(tables: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Concatenate structures, as bytes: numpy would copy field by field, which takes ten times as long."""
    dtype = tables[0].dtype
    return np.concatenate([each.view(f"V{dtype.itemsize}") for each in tables]).view(dtype)


def numbered(values: Ints) -> Ints:
    """Number each value among its equals, from 0, in their order.

    >>> numbered(np.array([7, 5, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(is_first)
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.arange(len(values)) - np.repeat(first, np.diff(first, append=len(values)))
    return numbers
