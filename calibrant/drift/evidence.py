"""The evidence of one cohort against calibration, by bet, and its accumulation over time.

A table suffices, and the number is evidence, for three reasons:

- For y in [0, 1], exp(λy) ≤ 1 − y + y·exp(λ). A share of ratings is therefore at worst a coin.
- The weights of a unit sum to one. By Hölder's inequality, the mean of its factor is at most one for any
  dependence inside the unit.
- log(1 − p + p·exp(λ)) is concave in p. A bin's mean score instead of single scores therefore only lowers the
  evidence. This holds for pooled totals too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.bets import Bets
from calibrant.drift.tolerance import Tolerance

Floats = NDArray[np.float64]


def log_bets(
    weight: Floats,
    confidence: Floats,
    correct: Floats,
    bets: Bets,
    tolerance: Tolerance,
    pending: Floats | None = None,
) -> Floats:
    """Return the log evidence of each bet; its exponential has mean at most one while all gaps are within tolerance.

    Parameters
    ----------
    weight, confidence, correct : float64 (..., n_bins), unit-weighted sums
    bets : over n_bins
    tolerance : over n_bins
    pending : float64 (..., n_bins), weight of units whose label has not arrived. Each bet takes the label and the score of the bin
        that are least favourable to it, so that the evidence is valid whichever labels are late. None counts labelled units alone

    Returns
    -------
    float64 (..., n_bets), in nats; 0 for an empty table.

    Source
    ------
    Σ_k [λ_k Y_k − N_k log(1 − p_k + p_k exp(λ_k))], p_k the mean score moved to the end of the tolerance on the
    bet's side and kept in [0, 1]. With tolerance 0 and one record it is the risk-adjusted CUSUM weight of
    Steiner et al. (2000).

    Examples
    --------
    >>> from calibrant.drift.bets import bets_of
    >>> one = np.array([1.0])
    >>> gain = log_bets(one, 0.5 * one, one, bets_of(1), Tolerance.within(0.0, 1))
    >>> round(float(np.exp(gain[0])), 4), round(float(2 / (1 + np.exp(-0.1))), 4)
    (1.05, 1.05)
    """
    mean = np.divide(confidence, weight, out=np.zeros_like(weight), where=weight > 0)
    low = np.clip(mean + tolerance.lower, 0.0, 1.0)[..., None, :]
    high = np.clip(mean + tolerance.upper, 0.0, 1.0)[..., None, :]
    shifts = bets.shifts
    granted = np.where(shifts > 0, high, low)
    cost = weight[..., None, :] * np.log1p(granted * np.expm1(shifts))
    if pending is not None:
        cost = cost + pending[..., None, :] * _least_favourable(bets, tolerance)
    return bets.summed(shifts * correct[..., None, :] - cost)


def _least_favourable(bets: Bets, tolerance: Tolerance) -> Floats:
    """Return what a pending label costs each shift: label 0 for an upward bet, 1 for a downward one; at least 0."""
    edges, shifts = np.arange(bets.bins + 1) / bets.bins, bets.shifts
    high = np.clip(edges[1:] + tolerance.upper, 0.0, 1.0)
    low = np.clip(edges[:-1] + tolerance.lower, 0.0, 1.0)
    upward = np.log1p(high * np.expm1(shifts))
    return np.where(shifts > 0, upward, np.log1p(low * np.expm1(shifts)) - shifts)


def log_mixture(log_values: Floats, bets: Bets) -> Floats:
    """Log of the weighted sum over bets of exp(log_values), float64 (..., n_bets) to (...)."""
    return np.asarray(np.logaddexp.reduce(log_values + bets.log_weights, axis=-1))


def shiryaev_roberts(log_sr: Floats, log_evidence: Floats) -> Floats:
    """One step of log R ← log((1 + R) e), any shape; R starts at 0, whose log is minus infinity.

    Source
    ------
    Shin, Ramdas, Rinaldo, E-detectors (NEJSDS 2023): a mixture of R reaches A within T steps with probability at
    most T / A.
    """
    return np.asarray(np.logaddexp(0.0, log_sr) + log_evidence)
