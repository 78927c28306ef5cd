"""Smooth calibration error: differences of hits and scores smoothed by a Gaussian that is reflected at 0 and 1.

The reflected Gaussian is the heat kernel of [0, 1], so that smoothing multiplies the coefficients of a cosine series;
every score keeps its place and its full weight, exact 0 and 1 included, and each bandwidth costs one cosine
transform.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

Floats = NDArray[np.float64]
N_COEFFICIENTS = (512, 2048, 8192)
# Coefficients beyond this many standard deviations of the spectrum are below 1e-8.
_REACH = 6.0
_STEPS = 50


def least_bandwidth(n_coefficients: int) -> float:
    """The smallest bandwidth that so many coefficients resolve."""
    return _REACH / (np.pi * n_coefficients)


def cosine_coefficients(score: Floats, difference: Floats, n: int) -> Floats:
    """Sums of difference times cos(pi k score), k < n, by the recurrence of Chebyshev; (..., n_scores) to (..., n)."""
    twice = 2.0 * np.cos(np.pi * score)
    before, now = np.ones(len(score)), twice / 2.0
    result = np.empty((*difference.shape[:-1], n))
    for k in range(n):
        result[..., k] = difference @ before
        before, now = now, twice * now - before
    return result


def smoothed_error(coefficients: Floats, bandwidth: Floats) -> Floats:
    """Integral of the absolute smoothed differences; (..., n) and (...) to (...).

    Source
    ------
    Błasiok, Nakkiran, Smooth ECE (ICLR 2024), definition 7: smECE at one bandwidth.
    """
    n = coefficients.shape[-1]
    decay = np.exp(-((bandwidth[..., None] * np.pi * np.arange(n)) ** 2) / 2.0)
    padded = np.zeros((*coefficients.shape[:-1], 2 * n))
    padded[..., :n] = coefficients * decay
    return np.asarray(np.abs(dct(padded, type=3, axis=-1)).mean(axis=-1))


def fixed_point(coefficients: Floats, tolerance: float = 1e-9) -> tuple[Floats, Floats]:
    """The bandwidth that equals its own smoothed error, by bisection: error and bandwidth; (..., n) to (...) twice.

    The error falls as the bandwidth grows, so there is one such point. Where it lies below what the coefficients
    resolve, the error at the smallest bandwidth is returned: the true one lies between the two.

    Source
    ------
    Błasiok, Nakkiran, Smooth ECE (ICLR 2024), definition 8.
    """
    low = np.full(coefficients.shape[:-1], least_bandwidth(coefficients.shape[-1]))
    at_low = smoothed_error(coefficients, low)
    below = at_low <= low
    high = np.maximum(at_low, low)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        above = smoothed_error(coefficients, middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
        if float((high - low).max(initial=0.0)) < tolerance:
            break
    floor = np.full_like(high, least_bandwidth(coefficients.shape[-1]))
    return np.where(below, at_low, high), np.where(below, floor, high)


def smooth_calibration_error(score: Floats, difference: Floats) -> tuple[float, float]:
    """Smooth ECE and its bandwidth.

    Parameters
    ----------
    score : float64 (n,), in [0, 1]
    difference : float64 (n,), sums of hits minus scores at each score, over the whole weight

    Returns
    -------
    error in [0, 1], and the bandwidth at which it was taken: the same number, or the smallest that is resolved where
    that is larger

    Examples
    --------
    >>> error, bandwidth = smooth_calibration_error(np.array([0.5, 1.0]), np.array([0.0, -0.2]))
    >>> round(error, 6), round(bandwidth, 6)
    (0.2, 0.2)
    """
    for n in N_COEFFICIENTS:
        error, bandwidth = fixed_point(cosine_coefficients(score, difference, n))
        if error >= least_bandwidth(n):
            break
    return float(error), float(bandwidth)


def reflected_kernel(score: Floats, bandwidth: float, n_points: int) -> Floats:
    """Values of the reflected Gaussians about the scores at the middles of n_points intervals; (n_scores, n_points)."""
    n = max(16, int(np.ceil(_REACH / (np.pi * bandwidth))))
    k = np.arange(n)
    at = (np.arange(n_points) + 0.5) / n_points
    decay = np.where(k == 0, 1.0, 2.0) * np.exp(-((bandwidth * np.pi * k) ** 2) / 2.0)
    return np.asarray((np.cos(np.pi * np.outer(score, k)) * decay) @ np.cos(np.pi * np.outer(k, at)))
