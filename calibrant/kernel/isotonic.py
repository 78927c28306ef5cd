"""Decrease of the Brier score by isotonic recalibration, for many resampled curves of rates in one call of the kernel."""

from __future__ import annotations

import ctypes

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library


def brier_gains(weight: Floats, rate: Floats, score: Floats) -> Floats:
    """Return the decrease of each row's mean Brier score by isotonic recalibration, at least 0.

    Parameters
    ----------
    weight : float64 (n,) or (n_weights, n), positive; where there are fewer than rates, they repeat
    rate : float64 (n_rows, n), in [0, 1]
    score : float64 (n,)

    Returns
    -------
    float64 (n_rows,)
    """
    if not rate.size:
        return np.zeros(len(rate))
    arrays = [np.ascontiguousarray(each, np.float64) for each in (weight, rate, score)]
    n_rows, n = rate.shape
    n_weights = len(weight) if weight.ndim == 2 else 1
    gain = np.empty(n_rows)
    rows = structures()["Gains"](n_rows, n, n_weights, *(each.ctypes.data for each in arrays))
    if library().calibrant_kernel_gains(ctypes.byref(rows), gain.ctypes.data):
        raise MemoryError(f"the kernel has no memory for {n} cells")
    return gain
