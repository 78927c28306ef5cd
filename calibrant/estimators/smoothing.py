"""Smooth calibration error: differences of outcomes and scores smoothed by a Gaussian that is reflected at 0 and 1.

The reflected Gaussian is the heat kernel of [0, 1], so smoothing multiplies the coefficients of a cosine series. Every score keeps its
place and its full weight, exact 0 and 1 included, and each bandwidth costs one cosine transform.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.arrays import Floats

N_COEFFICIENTS = (512, 2048, 8192)
# Coefficients beyond this many standard deviations of the spectrum are below 1e-8.
_REACH = 6.0
_STEPS = 50


def min_bandwidth(n_coefficients: int) -> float:
    """Return the smallest bandwidth that so many coefficients resolve."""
    return _REACH / (np.pi * n_coefficients)


def cosine_coefficients(score: Floats, difference: Floats, n: int) -> Floats:
    """Return sums of difference times cos(pi k score), k < n, by the recurrence of Chebyshev; (..., n_scores) to (..., n)."""
    twice = 2.0 * np.cos(np.pi * score)
    before, now = np.ones(len(score)), twice / 2.0
    result = np.empty((*difference.shape[:-1], n))
    for k in range(n):
        result[..., k] = difference @ before
        before, now = now, twice * now - before
    return result


def grid_coefficients(difference: Floats) -> Floats:
    """Compute `cosine_coefficients` of scores at the middles of equal intervals, (..., n) to (..., n), by one transform."""
    return np.asarray(scipy.fft.dct(difference, type=2, axis=-1) / 2.0)


def smoothed_error(coefficients: Floats, bandwidth: Floats) -> Floats:
    """Return the integral of the absolute smoothed differences; (..., n) and (...) to (...).

    Source
    ------
    Błasiok, Nakkiran, Smooth ECE (ICLR 2024), definition 7: smECE at one bandwidth.
    """
    n = coefficients.shape[-1]
    decay = np.exp(-((bandwidth[..., None] * np.pi * np.arange(n)) ** 2) / 2.0)
    padded = np.zeros((*coefficients.shape[:-1], 2 * n))
    padded[..., :n] = coefficients * decay
    return np.asarray(np.abs(scipy.fft.dct(padded, type=3, axis=-1)).mean(axis=-1))


def fixed_point(coefficients: Floats, tolerance: float = 1e-9) -> tuple[Floats, Floats]:
    """Find the bandwidth that equals its own smoothed error; return error and bandwidth; (..., n) to (...) twice.

    The error decreases as the bandwidth grows, so there is one such point. If it is below what the coefficients resolve, the error at the
    smallest bandwidth is returned: the true one is between the two.

    Parameters
    ----------
    coefficients : of `cosine_coefficients`
    tolerance : of the error over its bandwidth, which is 1 at the point

    Source
    ------
    Błasiok, Nakkiran, Smooth ECE (ICLR 2024), definition 8.
    """
    floor = np.full(coefficients.shape[:-1], min_bandwidth(coefficients.shape[-1]))
    at_floor = smoothed_error(coefficients, floor)
    below = at_floor <= floor
    low, high = np.log(floor), np.log(np.maximum(at_floor, floor))
    # The logarithm of error over bandwidth is nearly linear: a secant finds its zero in a few steps.
    over, under = high - low, _log_excess(coefficients, high)
    at = np.where(below, low, high)
    for _ in range(_STEPS):
        span = np.where(below, 1.0, over - under)
        at = np.where(below, at, low + (high - low) * over / np.where(span > 0, span, 1.0))
        excess = _log_excess(coefficients, at)
        if float(np.abs(np.where(below, 0.0, excess)).max(initial=0.0)) < tolerance:
            break
        above = excess > 0.0
        # An end that does not move counts half the next time; otherwise it could stay permanently.
        over, under = np.where(above, excess, over / 2.0), np.where(above, under / 2.0, excess)
        low, high = np.where(above, at, low), np.where(above, high, at)
    bandwidth = np.exp(at)
    return np.where(below, at_floor, bandwidth), np.where(below, floor, bandwidth)


def _log_excess(coefficients: Floats, log_bandwidth: Floats) -> Floats:
    """Return the logarithm of the error divided by its bandwidth."""
    error = smoothed_error(coefficients, np.exp(log_bandwidth))
    return np.asarray(np.log(np.maximum(error, 1e-300)) - log_bandwidth)


def smooth_calibration_error(score: Floats, difference: Floats) -> tuple[float, float]:
    """Return smooth ECE and its bandwidth.

    Parameters
    ----------
    score : float64 (n,), in [0, 1]
    difference : float64 (n,), sums of outcomes minus scores at each score, divided by the total weight

    Returns
    -------
    error in [0, 1], and its bandwidth: the same number, or the smallest resolved one if that is larger

    Examples
    --------
    >>> error, bandwidth = smooth_calibration_error(np.array([0.5, 1.0]), np.array([0.0, -0.2]))
    >>> round(error, 6), round(bandwidth, 6)
    (0.2, 0.2)
    """
    error, bandwidth = smooth_calibration_errors(score, difference[None])
    return float(error[0]), float(bandwidth[0])


def smooth_calibration_errors(
    score: Floats, difference: Floats, tolerance: float = 1e-9
) -> tuple[Floats, Floats]:
    """Return smooth ECE and its bandwidth for several differences at the same scores; (n_rows, n) to (n_rows,) twice."""
    error, bandwidth = np.empty((2, len(difference)))
    left = np.arange(len(difference))
    for n in N_COEFFICIENTS:
        error[left], bandwidth[left] = fixed_point(
            cosine_coefficients(score, difference[left], n), tolerance
        )
        left = left[error[left] < min_bandwidth(n)]
        if not len(left):
            break
    return error, bandwidth


def reflected_kernel(score: Floats, bandwidth: float, n_points: int) -> Floats:
    """Return values of the reflected Gaussians about the scores at the middles of n_points intervals; (n_scores, n_points)."""
    n = max(16, int(np.ceil(_REACH / (np.pi * bandwidth))))
    k = np.arange(n)
    at = (np.arange(n_points) + 0.5) / n_points
    decay = np.where(k == 0, 1.0, 2.0) * np.exp(-((bandwidth * np.pi * k) ** 2) / 2.0)
    return np.asarray(
        (np.cos(np.pi * np.outer(score, k)) * decay) @ np.cos(np.pi * np.outer(k, at))
    )
