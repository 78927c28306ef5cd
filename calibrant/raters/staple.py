"""STAPLE: a consensus of binary segmentations by several raters, with each rater's sensitivity and specificity, by EM.

    W_i = g a_i / (g a_i + (1 - g) b_i),   a_i = Π_j p_j^D_ij (1 - p_j)^(1 - D_ij),   b_i = Π_j q_j^(1 - D_ij) (1 - q_j)^D_ij
    p_j = Σ_i W_i D_ij / Σ_i W_i,   q_j = Σ_i (1 - W_i)(1 - D_ij) / Σ_i (1 - W_i)

g is the mean of all ratings times the confidence weight; p and q start at 0.99999; it stops when no p or q changes by
more than 1e-7. These are the defaults of ITK's STAPLEImageFilter, which is the reference of the tests.

Source
------
Warfield, Zou, Wells (IEEE Transactions on Medical Imaging 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.errors import CalibrationInputError

MIN_RATERS = 3
START = 0.99999
STILL = 1e-7
MAX_ITERATIONS = 10_000
THRESHOLD = 0.5


@dataclass(frozen=True)
class Consensus:
    """A consensus of binary segmentations.

    Attributes
    ----------
    probability : float64 (n,), W of each pixel; it belongs to the consensus if above 0.5
    sensitivity, specificity : float64 (n_raters,); nan where no pixel determines it
    prior : g
    n_iterations : steps of EM
    converged : whether it converged before the limit of iterations
    """

    probability: Floats
    sensitivity: Floats
    specificity: Floats
    prior: float
    n_iterations: int
    converged: bool

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Pixels of the consensus, (n,)."""
        return np.asarray(self.probability > THRESHOLD)


def staple(
    ratings: ArrayLike, *, confidence_weight: float = 1.0, max_iterations: int = MAX_ITERATIONS
) -> Consensus:
    """Compute the consensus of raters who all rated every pixel.

    Parameters
    ----------
    ratings : bool (n, n_raters), whether the rater marked the pixel
    confidence_weight : factor of the prior
    max_iterations : at least 1

    Raises
    ------
    CalibrationInputError
        Fewer than three raters, no pixel, or an option outside its range.

    Examples
    --------
    >>> found = staple([[1, 1, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0]])
    >>> found.mask.tolist(), np.round(found.sensitivity, 3).tolist()
    ([True, True, False, False], [1.0, 1.0, 0.5])
    """
    marked = np.asarray(ratings, bool)
    if marked.ndim != 2 or not len(marked) or marked.shape[1] < MIN_RATERS:
        detail = (
            f"Received ratings of shape {marked.shape}; expected (n, {MIN_RATERS} raters or more)."
        )
        raise CalibrationInputError.at("/raters", "too_few_raters", detail)
    if not 0.0 < confidence_weight <= 1e6 or max_iterations < 1:
        detail = "expected confidence_weight in (0, 1e6] and max_iterations of at least 1"
        raise CalibrationInputError.at("/raters", "range", detail)
    # Pixels with the same ratings have the same W: iterations cost the number of patterns.
    patterns, place, counts = np.unique(marked, axis=0, return_inverse=True, return_counts=True)
    prior = min(float(marked.mean()) * confidence_weight, 1.0)
    p, q = (np.full(marked.shape[1], START) for _ in range(2))
    weight = np.zeros(len(patterns))
    converged, n_iterations = False, 0
    while n_iterations < max_iterations and not converged:
        n_iterations += 1
        weight = _posterior(patterns, p, q, prior)
        former = np.concatenate([p, q])
        p = _rate(counts * weight, patterns)
        q = _rate(counts * (1.0 - weight), ~patterns)
        change = np.nan_to_num(np.concatenate([p, q]) - former)
        converged = n_iterations > 1 and bool((np.abs(change) <= STILL).all())
    return Consensus(weight[place.reshape(-1)], p, q, prior, n_iterations, converged)


def _posterior(patterns: NDArray[np.bool_], p: Floats, q: Floats, prior: float) -> Floats:
    # Where no pixel determines a rate, the rater has no influence on it.
    p, q = np.nan_to_num(p, nan=START), np.nan_to_num(q, nan=START)
    inside = prior * np.where(patterns, p, 1.0 - p).prod(axis=1)
    outside = (1.0 - prior) * np.where(patterns, 1.0 - q, q).prod(axis=1)
    total = inside + outside
    found: Floats = ratio(inside, total)
    return found


def _rate(weight: Floats, marked: NDArray[np.bool_]) -> Floats:
    total = float(weight.sum())
    if not total > 0:
        return np.full(marked.shape[1], np.nan)
    return np.asarray(weight @ marked / total, np.float64)
