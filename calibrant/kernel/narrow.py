"""Four bytes a score by the kernel, where they restore a row: one pass over the rows, which take numpy some twenty."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library


def narrowed(
    scores: NDArray[np.float64], logits: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.float32], NDArray[np.float64]]:
    """Return what `calibrant.core.float32.narrow_scores` returns."""
    n, n_columns = scores.shape
    wide = np.ascontiguousarray(scores, np.float64)
    is_logits = np.ascontiguousarray(logits, np.bool_)
    fits, totals = np.empty(n, np.bool_), np.empty(n)
    narrow = np.empty((n, n_columns), np.float32)
    rows = structures()["Narrowing"](n, n_columns, wide.ctypes.data, is_logits.ctypes.data)
    library().calibrant_kernel_narrow(
        ctypes.byref(rows), fits.ctypes.data, narrow.ctypes.data, totals.ctypes.data
    )
    return fits, narrow, totals
