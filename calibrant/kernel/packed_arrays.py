"""Values of many packed arrays in one call of the kernel: numpy takes a few microseconds for each array, however short."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.library import library

AS_STORED, INTEGERS, WHOLE_NUMBERS = range(3)
Ints = NDArray[np.int64]


def read_packed(body: bytes, arrays: Ints, values: NDArray[np.uint8]) -> bool:
    """Write the values of packed arrays; return False without the kernel.

    Parameters
    ----------
    body : what contains them
    arrays : int64 (n_arrays, 5): number of values, bytes of a stored one, how they become those in memory, place in `body`
        and place in `values`
    values : where they go; each array has room, and is at a multiple of the bytes of a value
    """
    found = library()
    if found is None:
        return False
    start = np.array([0, 0, 0, np.frombuffer(body, np.uint8).ctypes.data, values.ctypes.data])
    placed = np.ascontiguousarray(arrays + start, np.int64)
    found.calibrant_kernel_packed_arrays(placed.ctypes.data, len(placed))
    return True
