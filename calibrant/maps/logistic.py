"""Logistic regression on a handful of weighted points, to rounding: what Platt, beta and their kin solve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.cells import Cells
from calibrant.maps.base import Floats
from calibrant.maps.base import logistic as sigmoid

MOST_STEPS = 100
STILL = 1e-11
RUNAWAY = 1e6


@dataclass(frozen=True)
class Logistic:
    """Coefficients (n_features + 1,), the intercept last, with how the solve went; loss and gradient are per weight."""

    coefficients: Floats
    loss: float
    gradient_norm: float
    iterations: int
    converged: bool


def fit_logistic(features: Floats, correct: Floats, weight: Floats) -> Logistic:
    """Maximum likelihood by Newton's method with halved steps.

    Parameters
    ----------
    features : float64 (n, n_features); none for an intercept alone
    correct, weight : float64 (n,), weighted hits and weight of each point

    Returns
    -------
    Logistic; `converged` is False where the likelihood has no maximum (separable outcomes).
    """
    middle = np.average(features, axis=0, weights=weight)
    scale = np.sqrt(np.average((features - middle) ** 2, axis=0, weights=weight))
    scale = np.where(scale > 0.0, scale, 1.0)
    design = np.column_stack([(features - middle) / scale, np.ones(len(weight))])
    total = weight.sum()
    at = np.zeros(design.shape[1])
    at[-1] = np.log(correct.sum() / (total - correct.sum()))
    loss = _loss(design @ at, correct, weight) / total
    norm, step = np.inf, 0
    for step in range(1, MOST_STEPS + 1):  # noqa: B007
        chance = sigmoid(design @ at)
        gradient = design.T @ (weight * chance - correct) / total
        norm = float(np.abs(gradient).max())
        if norm < STILL or np.abs(at).max() > RUNAWAY:
            break
        bend = (design.T * (weight * chance * (1.0 - chance))) @ design / total
        move = np.linalg.lstsq(bend, gradient, rcond=None)[0]
        at, better = _halved(design, correct, weight, at, move, loss)
        if better >= loss:
            break
        loss = better
    plain = at[:-1] / scale
    intercept = at[-1] - float(plain @ middle)
    small = norm < 1e-7 and bool(np.abs(at).max() < 1e3)
    return Logistic(np.append(plain, intercept), loss, norm, step, small)


def separated(cells: Cells) -> bool:
    """Whether all hits lie at or above all misses, so that a rising logistic curve has no best slope."""
    hits = cells.correct > 0.0
    misses = cells.weight - cells.correct > 1e-12 * cells.weight
    if not hits.any() or not misses.any():
        return True
    mean = cells.mean
    return bool(mean[hits].min() >= mean[misses].max())


def spread_out(cells: Cells, chance: Floats) -> tuple[Floats, Floats, Floats]:
    """Each cell's weight put at its two bounds with its mean unchanged: the other extreme from all at the mean.

    Hits go to the two points in proportion to `chance` (2, n_cells), their probabilities of a hit.

    Returns
    -------
    scores, correct, weight : float64 (2 n_cells,)
    """
    width = cells.upper - cells.lower
    upper = np.divide(cells.mean - cells.lower, width, out=np.zeros(len(cells)), where=width > 0)
    share = np.stack([1.0 - np.clip(upper, 0.0, 1.0), np.clip(upper, 0.0, 1.0)])
    expected = share * chance
    part = expected / np.maximum(expected.sum(axis=0), 1e-300)
    missed = share * (1.0 - chance)
    missed = missed / np.maximum(missed.sum(axis=0), 1e-300)
    correct = part * cells.correct
    weight = correct + missed * (cells.weight - cells.correct)
    score = np.stack([cells.lower, cells.upper])
    keep = (weight > 0.0).ravel()
    return score.ravel()[keep], correct.ravel()[keep], weight.ravel()[keep]


def _loss(linear: Floats, correct: Floats, weight: Floats) -> float:
    return float(weight @ np.logaddexp(0.0, linear) - correct @ linear)


def _halved(
    design: Floats, correct: Floats, weight: Floats, at: Floats, move: Floats, loss: float
) -> tuple[Floats, float]:
    """The first of the step, its half, its quarter and so on that lowers the loss."""
    total = weight.sum()
    for halving in range(40):
        tried: NDArray[np.float64] = at - move * 0.5**halving
        found = _loss(design @ tried, correct, weight) / total
        if found < loss:
            return tried, found
    return at, loss
