"""Isotonic recalibration of cells, and the decomposition of a proper score into three parts.

The score of the predictions is miscalibration minus discrimination plus uncertainty: the gain from recalibration, the value of the
order of the scores, and the score of the base rate.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library

SCORES = ("brier", "log")


@dataclass(frozen=True)
class Decomposition:
    """Parts of a mean score. `score` and `miscalibration` are infinite where an outcome had probability 0."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def recalibrated(weight: Floats, rate: Floats) -> Floats:
    """Return the non-decreasing rates nearest to these, float64 (n,), by pooling adjacent violators.

    Examples
    --------
    >>> recalibrated(np.array([1.0, 1.0, 2.0]), np.array([0.5, 0.0, 1.0])).tolist()
    [0.25, 0.25, 1.0]
    """
    return np.asarray(scipy.optimize.isotonic_regression(rate, weights=weight).x)


def each_recalibrated(weight: Floats, rates: Floats) -> Floats:
    """Recalibrate every row of rates in [0, 1] with the same weights or its own, as `recalibrated`; float64 (n_rows, n)."""
    # Rows at a distance of two never pool with each other: one pass over all of them, in C++.
    apart = rates + 2.0 * np.arange(len(rates))[:, None]
    pooled = recalibrated(np.broadcast_to(weight, rates.shape).ravel(), apart.ravel()).reshape(
        rates.shape
    )
    return np.asarray(np.clip(pooled - 2.0 * np.arange(len(rates))[:, None], 0.0, 1.0))


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


def mean_score(weight: Floats, rate: Floats, forecast: Floats, score: str) -> Floats:
    """Return the mean score of forecasts of a binary event that occurred with these rates; (..., n) to (...).

    Parameters
    ----------
    score : "brier" for the squared difference, "log" for minus the logarithm, in nats
    """
    if score == "brier":
        loss = forecast**2 - 2.0 * forecast * rate + rate
    else:
        loss = -(scipy.special.xlogy(rate, forecast) + scipy.special.xlog1py(1.0 - rate, -forecast))
    return np.asarray((weight * loss).sum(axis=-1) / weight.sum(axis=-1))


def decompose(weight: Floats, score: Floats, rate: Floats, kind: str) -> Decomposition:
    """Compute the CORP decomposition.

    Parameters
    ----------
    weight, score, rate : float64 (n,), in increasing order of score, each score once
    kind : of `SCORES`

    Source
    ------
    Dimitriadis, Gneiting, Jordan, Stable reliability diagrams for probabilistic classifiers (PNAS 2021).

    Examples
    --------
    >>> parts = decompose(np.array([2.0, 2.0]), np.array([0.25, 1.0]), np.array([0.0, 0.5]), "brier")
    >>> parts.score, parts.miscalibration, parts.discrimination, parts.uncertainty
    (0.28125, 0.15625, 0.0625, 0.1875)
    """
    own = float(mean_score(weight, rate, score, kind))
    best = float(mean_score(weight, rate, recalibrated(weight, rate), kind))
    base = np.full(len(rate), weight @ rate / weight.sum())
    uncertainty = float(mean_score(weight, rate, base, kind))
    # Differences of equal sums: a rounding residue below zero is zero.
    return Decomposition(
        own, max(own - best, 0.0), max(uncertainty - best, 0.0), max(uncertainty, 0.0)
    )


def min_score(weight: Floats, correct: Floats, divisible: NDArray[np.bool_], kind: str) -> float:
    """Return the mean recalibrated score if every miss of a divisible cell were scored below every hit of it.

    No arrangement inside the cells has a smaller recalibrated score: the cumulative sums of outcomes are above this one's, and a lower convex
    minorant has slopes further apart.
    """
    incorrect_ratings = np.where(divisible, weight - correct, weight)
    correct_ratings = np.where(divisible, correct, 0.0)
    mass = np.stack([incorrect_ratings, correct_ratings], axis=1).ravel()
    rate = np.stack(
        [np.where(divisible, 0.0, correct / weight), np.ones(len(weight))], axis=1
    ).ravel()
    kept = mass > 0
    mass, rate = mass[kept], rate[kept]
    return float(mean_score(mass, rate, recalibrated(mass, rate), kind))


def recalibration_bound(cells: Cells, kind: str) -> float:
    """Bound the decrease of the recalibrated score when scores are anywhere inside their cells."""
    weight, rate = cells.weight, np.clip(cells.rate, 0.0, 1.0)
    divisible = cells.divisible
    best = float(mean_score(weight, rate, recalibrated(weight, rate), kind))
    return max(best - min_score(weight, rate * weight, divisible, kind), 0.0)


def score_bound(cells: Cells, kind: str) -> float:
    """Bound the change of the predictions' own score when scores are anywhere inside their cells."""
    several = cells.predictions > 1
    if kind == "brier":
        spread = np.maximum((cells.upper - cells.mean) * (cells.mean - cells.lower), 0.0) * several
        return float(
            (cells.weight * spread + 2.0 * cells.largest_covariance).sum() / cells.weight.sum()
        )
    losses = (_log_loss(cells.correct, at) for at in (cells.lower, cells.mean, cells.upper))
    missed = np.maximum(cells.weight - cells.correct, 0.0)
    others = (_log_loss(missed, 1.0 - at) for at in (cells.lower, cells.mean, cells.upper))
    change = sum(
        np.maximum(np.abs(low - mean), np.abs(high - mean)) for low, mean, high in (losses, others)
    )
    return float(np.where(several, change, 0.0).sum() / cells.weight.sum())


def _log_loss(weight: Floats, probability: Floats) -> Floats:
    """Return log losses of outcomes of this weight and probability; infinite at 0, zero where there is no weight."""
    with np.errstate(divide="ignore"):
        return np.asarray(
            -weight * np.log(probability, where=weight > 0, out=np.zeros(len(weight)))
        )
