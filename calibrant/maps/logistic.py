"""Logistic regression on a handful of weighted points, to rounding: what Platt, beta and their kin solve."""

from __future__ import annotations

from collections.abc import Callable
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


def cell_error(
    cells: Cells,
    features: Callable[[Floats], Floats],
    coefficients: Floats,
    refit: Callable[[Floats, Floats, Floats], Floats],
) -> float:
    """What a fit to cell means may cost, as the largest change of a probability over the cells.

    The sum of two parts: the change when every cell's weight moves to its two bounds with the mean unchanged, the other
    extreme from all at the mean; and three standard deviations of what chance does to where in its cell the hits lie.

    Parameters
    ----------
    cells : Cells, filled ones
    features : scores (n,) to the curve's features (n, n_features)
    coefficients : float64 (n_features + 1,), the intercept last, as fitted to the means
    refit : scores, hits and weights to such coefficients
    """
    if (cells.lower == cells.upper).all():
        return 0.0

    def chance(score: Floats, at: Floats) -> Floats:
        return sigmoid(features(score) @ at[:-1] + at[-1])

    bounds = np.stack([cells.lower, cells.upper])
    there = np.stack([chance(bound, coefficients) for bound in bounds])
    other = refit(*_spread_out(cells, there))
    here = chance(cells.mean, coefficients)
    moved = np.abs(chance(cells.mean, other) - here)
    design = np.column_stack([features(cells.mean), np.ones(len(cells))])
    reach = 0.5 * (features(cells.upper) - features(cells.lower))
    reach = np.column_stack([reach, np.zeros(len(cells))])
    bend = np.linalg.pinv(
        (design.T * (cells.weight * here * (1.0 - here))) @ design, hermitian=True
    )
    noise = (
        bend @ (reach.T * (cells.weight * here * (1.0 - here) * _dependence(cells))) @ reach @ bend
    )
    deviation = np.sqrt(np.maximum(np.einsum("nd,de,ne->n", design, noise, design), 0.0))
    return float((moved + 3.0 * here * (1.0 - here) * deviation).max())


def _dependence(cells: Cells) -> Floats:
    """How many times the variance of independent ratings of weight one the kept variance is."""
    independent = cells.confidence * (1.0 - np.minimum(cells.mean, 1.0))
    safe = np.where(independent > 0.0, independent, 1.0)
    return np.maximum(np.where(independent > 0.0, cells.null_variance / safe, 1.0), 1.0)


def _spread_out(cells: Cells, chance: Floats) -> tuple[Floats, Floats, Floats]:
    """Each cell's weight put at its two bounds with its mean unchanged; scores, hits and weights, (2 n_cells,) each.

    Hits go to the two points in proportion to `chance` (2, n_cells), their probabilities of a hit.
    """
    width = cells.upper - cells.lower
    upper = np.divide(cells.mean - cells.lower, width, out=np.zeros(len(cells)), where=width > 0)
    share = np.stack([1.0 - np.clip(upper, 0.0, 1.0), np.clip(upper, 0.0, 1.0)])
    hits, misses = share * chance, share * (1.0 - chance)
    hits /= np.maximum(hits.sum(axis=0), 1e-300)
    misses /= np.maximum(misses.sum(axis=0), 1e-300)
    correct = hits * cells.correct
    weight = correct + misses * (cells.weight - cells.correct)
    keep = (weight > 0.0).ravel()
    score = np.stack([cells.lower, cells.upper])
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
