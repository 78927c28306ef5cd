"""Distinct integers and the index of each, without sorting where their range is small."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Ints

_MAX_DENSE = 1 << 22


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
