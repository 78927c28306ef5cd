"""Types of arrays, quotients whose divisor may be 0, and distinct integers."""

from __future__ import annotations

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
    found = np.full(np.broadcast_shapes(np.shape(top), np.shape(bottom)), otherwise)
    return np.asarray(np.divide(top, bottom, out=found, where=np.asarray(bottom) > 0))


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
