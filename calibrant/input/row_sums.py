"""Sums of rows of probabilities: which deviation from 1 is rounding.

Rounded to d decimals, K probabilities are off by at most half a unit of the last place each. So a row whose values all
have d decimals may be off by K 10^-d / 2, and by no more than 5 %.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SUM_EXACT = 1e-9
SUM_LENIENT = 1e-3
MAX_DECIMALS = 6
MAX_ROUNDING = 0.05

Floats = NDArray[np.float64]


def tolerance_of(rows: Floats) -> Floats:
    """Return the largest deviation from 1 that rounding explains, for the sum of each row.

    Parameters
    ----------
    rows : float64 (n, n_classes), in [0, 1]

    Returns
    -------
    float64 (n,)

    Examples
    --------
    >>> tolerance_of(np.array([[0.33, 0.33, 0.33], [0.333, 0.333, 0.333], [1 / 3, 1 / 3, 0.25]])).tolist()
    [0.015, 0.0015, 0.001]
    """
    tolerance = np.full(len(rows), SUM_LENIENT)
    left = np.arange(len(rows))
    for decimals in range(1, MAX_DECIMALS + 1):
        rounding = rows.shape[1] * 0.5 * 10.0**-decimals
        if rounding <= SUM_LENIENT or not len(left):
            break
        rounded = _have_decimals(rows[left], decimals)
        tolerance[left[rounded]] = min(rounding, MAX_ROUNDING)
        left = left[~rounded]
    return tolerance


def _have_decimals(rows: Floats, decimals: int) -> NDArray[np.bool_]:
    """Return which rows hold only numbers of so many decimals, or these rounded to float32."""
    scale = 10.0**decimals
    nearest = np.round(rows * scale) / scale
    return np.asarray(((rows == nearest) | (rows == nearest.astype(np.float32))).all(axis=1))
