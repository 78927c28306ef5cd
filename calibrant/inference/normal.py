"""Functions of the normal distribution for results of few rows: importing `scipy.special` takes several times as long as these results."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.kernel.library import library


def quantile(level: float) -> float:
    """Return the quantile of the standard normal distribution.

    Examples
    --------
    >>> round(quantile(0.975), 6)
    1.959964
    """
    return NormalDist().inv_cdf(level)


def erf(values: Floats) -> Floats:
    """Return the error function.

    Examples
    --------
    >>> erf(np.array([0.0, 1.0])).round(6).tolist()
    [0.0, 0.842701]
    """
    given = np.ascontiguousarray(values, np.float64)
    found = np.empty(given.shape)
    library().calibrant_kernel_erf(given.ctypes.data, given.size, found.ctypes.data)
    return found


def limited_moments(deviation: Floats, power: int) -> Floats:
    """Return the means of the first three powers of |x|^power, of normal x with mean 0 that is limited to [-1, 1].

    Parameters
    ----------
    deviation : float64 (n,), above 0
    power : 1 or 2

    Returns
    -------
    float64 (3, n)

    Examples
    --------
    The mean of |x| is √(2/π) deviations.

    >>> limited_moments(np.array([0.01]), 1)[:, 0].round(9).tolist()
    [0.007978846, 0.0001, 1.596e-06]
    """
    square = 0.5 / deviation**2
    beyond = 1.0 - erf(np.sqrt(square))
    found = np.empty((3, len(deviation)))
    for row, order in zip(found, (power, 2 * power, 3 * power), strict=True):
        half = (order + 1) / 2.0
        scale = 2.0 ** (order / 2.0) * math.gamma(half) / math.sqrt(math.pi)
        row[:] = scale * deviation**order * _lower_gamma(half, square) + beyond
    return found


def _lower_gamma(half: float, x: Floats) -> Floats:
    """Return the regularised lower incomplete gamma function of a multiple of 1/2, by recursion from 1/2 or 1."""
    order = half % 1.0 or 1.0
    found, decay = erf(np.sqrt(x)) if order < 1.0 else -np.expm1(-x), np.exp(-x)
    while order < half:
        found = found - x**order * decay / math.gamma(order + 1.0)
        order += 1.0
    return np.asarray(found)
