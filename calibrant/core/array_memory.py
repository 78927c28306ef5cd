"""Bytes that numpy arrays keep allocated.

`nbytes` is not that number: a view keeps its complete base alive, and two arrays may share one base.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
