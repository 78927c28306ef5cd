"""Ragged columns: pieces of different lengths in one array, and the index arithmetic that reads and joins them."""

from __future__ import annotations

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


def table_at(data: Bytes, starts: Ints, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the structures that begin at some bytes.

    Raises
    ------
    IndexError
        A structure exceeds the bytes.
    """
    found: NDArray[np.void] = data[starts[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0]
    return found


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
