"""Random halves of cells by the kernel: several divisions of the same cells in one call."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.kernel.library import library
from calibrant.kernel.structures import Divisions


def divided(
    is_halved: NDArray[np.bool_],
    weight: Floats,
    per_chance: Floats,
    correct: Floats,
    drawn: Floats,
) -> Floats:
    """Return the correct ratings of the halves of cells, and of the cells that are not halved.

    Parameters
    ----------
    is_halved : bool (n,)
    weight : float64 (n,)
    per_chance : float64 (n,), variance of correct ratings over rate * (1 - rate)
    correct : float64 (n_draws, n), or (1, n) where all draws divide the same
    drawn : float64 (n_draws, n), standard normal, without gaps in a row

    Returns
    -------
    float64 (n_draws, n + number of halved cells)
    """
    n_draws, n = drawn.shape
    if not drawn.size:
        return np.zeros((n_draws, 0))
    arrays = [
        np.ascontiguousarray(is_halved, np.bool_),
        *(np.ascontiguousarray(each, np.float64) for each in (weight, per_chance, correct)),
        drawn,
    ]
    stride = n if len(correct) == n_draws else 0
    halves = np.empty((n_draws, n + int(np.count_nonzero(is_halved))))
    pointers = [each.ctypes.data for each in arrays]
    divisions = Divisions(n_draws, n, stride, drawn.strides[0] // drawn.itemsize, *pointers)
    library().calibrant_kernel_divide(ctypes.byref(divisions), halves.ctypes.data)
    return halves
