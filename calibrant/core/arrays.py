"""Types of arrays, quotients whose divisor may be 0, distinct integers, sums over classes, and allocated bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_MAX_DENSE = 1 << 22


def ratio(top: ArrayLike, bottom: ArrayLike, otherwise: float = 0.0) -> Floats:
    """Return a quotient as float64, or `otherwise` where the divisor is not above 0.

    Examples
    --------
    >>> ratio(np.array([1.0, 2.0]), np.array([4.0, 0.0])).tolist()
    [0.25, 0.0]
    """
    top, bottom = np.asarray(top), np.asarray(bottom)
    is_alike = (
        top.shape == bottom.shape
    )  # what broadcasting asks takes as long as the division of few
    found = np.zeros(top.shape if is_alike else np.broadcast_shapes(top.shape, bottom.shape))
    if otherwise:
        found.fill(otherwise)
    return np.asarray(np.divide(top, bottom, out=found, where=bottom > 0))


def share(weight: Floats) -> Floats:
    """Return weights divided by their total over the last axis, in their own precision; 0 where there is none."""
    total = weight.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(weight, total, out=np.zeros_like(weight), where=total > 0))


def distinct(keys: Ints, size: int) -> tuple[Ints, Ints]:
    """Return distinct keys, sorted, and the index of each key's own among them.

    Parameters
    ----------
    keys : int64 (n,), from 0 to `size` - 1

    Examples
    --------
    >>> distinct(np.array([4, 0, 4]), 5)
    (array([0, 4]), array([1, 0, 1]))
    """
    if size > max(_MAX_DENSE, 4 * len(keys)):
        found, index = np.unique(keys, return_inverse=True)
        return found, index.astype(np.int64)
    present = np.zeros(size, bool)
    present[keys] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]


def over_classes(columns: Floats) -> Floats:
    """Sum over classes, class after class, so that a row gives the same bits in every batch.

    The order of numpy's additions depends on an array's shape. A score that selects a cell must have the same bits in a batch
    of one and in a batch of thousands.

    Parameters
    ----------
    columns : float64 (n_classes, n)

    Returns
    -------
    float64 (n,)

    Examples
    --------
    >>> import numpy as np
    >>> over_classes(np.array([[1.0, 2.0], [0.5, 0.25]])).tolist()
    [1.5, 2.25]
    """
    total: Floats = columns[0].copy()
    for column in columns[1:]:
        total += column
    return total


# The array object itself, with its shape and strides (CPython 3.11 to 3.13, numpy 2).
ARRAY_OBJECT_BYTES = 128


def stored_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes that the arrays keep allocated; a base that several share counts once.

    Examples
    --------
    >>> base = np.zeros(1000)
    >>> stored_bytes([base[:2], base[5:6]]) - 2 * ARRAY_OBJECT_BYTES
    8128
    >>> stored_bytes([base, base]) == stored_bytes([base])
    True
    """
    found: dict[int, int] = {}
    for array in arrays:
        found[id(array)] = ARRAY_OBJECT_BYTES + (array.nbytes if array.base is None else 0)
        base: Any = array.base
        while base is not None:
            is_array = isinstance(base, np.ndarray)
            below = base.base if is_array else None
            own = memoryview(base).nbytes if below is None else 0
            found[id(base)] = own + (ARRAY_OBJECT_BYTES if is_array else 0)
            base = below
    return sum(found.values())
