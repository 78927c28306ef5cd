"""Cumulative differences of outcomes and scores, and the distribution of their largest excursion for a calibrated model.

Scaled by its standard deviation, the curve of a calibrated model behaves like a Brownian motion. The two statistics therefore have
known distributions and need no bins.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio


def curve_of(weight: Floats, gap: Floats) -> Floats:
    """Return the running sum of weight times gap, divided by the total weight, from C_0 = 0 on; (..., n) to (..., n + 1)."""
    total = weight.sum(axis=-1, keepdims=True)
    steps = ratio(weight * gap, total)
    start = np.zeros((*steps.shape[:-1], 1))
    return np.concatenate([start, np.cumsum(steps, axis=-1)], axis=-1)


def ks_statistic(weight: Floats, gap: Floats) -> Floats:
    """Return the largest absolute value of the curve; (..., n) to (...).

    Examples
    --------
    >>> float(ks_statistic(np.array([1.0, 1.0]), np.array([0.5, -1.0])))
    0.25
    """
    return np.asarray(np.abs(curve_of(weight, gap)).max(axis=-1))


def kuiper_statistic(weight: Floats, gap: Floats) -> Floats:
    """Return the range of the curve, C_0 = 0 included; (..., n) to (...).

    Examples
    --------
    >>> float(kuiper_statistic(np.array([1.0, 1.0]), np.array([0.5, -1.0])))
    0.5
    """
    curve = curve_of(weight, gap)
    return np.asarray(curve.max(axis=-1) - curve.min(axis=-1))


def ks_survival(x: float) -> float:
    """Return the probability that a Brownian motion on [0, 1] leaves [-x, x].

    Source
    ------
    Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu (JMLR 2022), after Feller.

    Examples
    --------
    >>> round(ks_survival(2.241402727604947), 6)
    0.05
    """
    if x <= 0.0:
        return 1.0
    k = np.arange(200)
    if x < 1.0:
        odd = 2 * k + 1
        inside = 4.0 / np.pi * np.sum((-1.0) ** k / odd * np.exp(-((odd * np.pi / x) ** 2) / 8.0))
        return float(min(max(1.0 - inside, 0.0), 1.0))
    return float(min(4.0 * np.sum((-1.0) ** k * scipy.special.ndtr(-(2 * k + 1) * x)), 1.0))


def kuiper_survival(x: float) -> float:
    """Return the probability that the range of a Brownian motion on [0, 1] exceeds x.

    Source
    ------
    Feller, The asymptotic distribution of the range of sums of independent random variables (1951).

    Examples
    --------
    >>> kuiper_survival(0.0), round(kuiper_survival(2.497672), 4)
    (1.0, 0.05)
    """
    if x <= 0.0:
        return 1.0
    if x < 1.5:
        half = np.arange(1, 200) - 0.5
        terms = (8.0 / x**2 + 2.0 / (half * np.pi) ** 2) * np.exp(-2.0 * (half * np.pi / x) ** 2)
        return float(min(max(1.0 - np.sum(terms), 0.0), 1.0))
    k = np.arange(1, 200)
    return float(max(8.0 * np.sum((-1.0) ** (k - 1) * k * scipy.special.ndtr(-k * x)), 0.0))
