"""Confidence sequences for the rate of a bin: intervals that hold at all evaluations together."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_HALVINGS = 60


def rate_bounds(weight: Floats, correct: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the rates that the Beta mixture does not contradict.

    Parameters
    ----------
    weight : float64 (n_bins,), units in the bin
    correct : float64 (n_bins,), sum of their labels, each in [0, 1]
    alpha : probability that a bin's true rate is ever outside, over all evaluations; divide by the number of bins for all
        together

    Returns
    -------
    lower and upper, float64 (n_bins,); 0 and 1 in an empty bin.

    Raises
    ------
    ValueError
        `alpha` outside (0, 1).

    Source
    ------
    {m : B(1 + Y, 1 + N − Y) / (m^Y (1 − m)^(N − Y)) < 1 / α}: Ville's inequality for Robbins's mixture. It
    holds for labels between 0 and 1 and for any dependence inside a unit, because each unit's factor has mean
    at most one. It assumes a constant rate of the bin and independent units.

    Examples
    --------
    >>> low, high = rate_bounds(np.array([100.0]), np.array([30.0]), 0.05)
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.169, 0.457)
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"Received alpha={alpha}; expected a number in (0, 1).")
    correct = np.clip(correct, 0.0, weight)
    centre = np.divide(correct, weight, out=np.full(len(weight), 0.5), where=weight > 0)
    lower = _crossing(np.zeros(len(weight)), centre, weight, correct, alpha)
    upper = _crossing(np.ones(len(weight)), centre, weight, correct, alpha)
    return lower, upper


def _crossing(
    outside: Floats, inside: Floats, weight: Floats, correct: Floats, alpha: float
) -> Floats:
    """Return where the mixture reaches 1 / alpha between a rate outside and one inside; the outer rate if it does not."""
    reached = _excess(outside, weight, correct, alpha) < 0
    far, near = outside, inside
    for _ in range(_HALVINGS):
        middle = (far + near) / 2.0
        contradicted = _excess(middle, weight, correct, alpha) >= 0
        far, near = np.where(contradicted, middle, far), np.where(contradicted, near, middle)
    return np.where(reached, outside, far)


def _excess(rate: Floats, weight: Floats, correct: Floats, alpha: float) -> Floats:
    """Return the log of the mixture times alpha; it is non-negative if the rate is contradicted."""
    mixture = scipy.special.betaln(1.0 + correct, 1.0 + weight - correct)
    return np.asarray(
        mixture
        - scipy.special.xlogy(correct, rate)
        - scipy.special.xlog1py(weight - correct, -rate)
        + np.log(alpha)
    )
