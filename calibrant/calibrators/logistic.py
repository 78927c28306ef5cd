"""Solver of Platt, beta and related maps: logistic regression on few weighted points, accurate to rounding error.

With the diagnostics of a fit, the reasons why there is none, and a bound of its error from reading cells instead of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrant.calibrators.base import Floats
from calibrant.calibrators.cell_fits import log_odds, why_no_fit
from calibrant.calibrators.cell_fits import logistic as sigmoid
from calibrant.calibrators.solver import Minimum, minimise
from calibrant.core.cells import Cells
from calibrant.core.documents import Result


@dataclass(frozen=True)
class LogisticFit:
    """Coefficients (n_features + 1,), the intercept last, 0 at a bound; loss and gradient are per weight."""

    coefficients: Floats
    minimum: Minimum

    @property
    def converged(self) -> bool:
        """False if the likelihood has no maximum (separable outcomes)."""
        return self.minimum.converged and bool(np.abs(self.minimum.parameters).max() < 1e3)


class LogisticLoss:
    """Mean NLL of weighted points under a logistic curve of their features.

    Parameters
    ----------
    design : float64 (n, n_parameters)
    correct, weight : float64 (n,), weighted correct ratings and weight of each point
    offset : float64 (n,), added to the log odds of each point
    """

    def __init__(
        self, design: Floats, correct: Floats, weight: Floats, offset: Floats | float = 0.0
    ) -> None:
        self.design, self.correct, self.weight, self.offset = design, correct, weight, offset
        self.total = float(weight.sum())

    def value_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        linear = self.design @ parameters + self.offset
        slopes = self.weight * sigmoid(linear) - self.correct
        value = self.weight @ np.logaddexp(0.0, linear) - self.correct @ linear
        return float(value) / self.total, self.design.T @ slopes / self.total

    def hessian(self, parameters: Floats) -> Floats:
        chance = sigmoid(self.design @ parameters + self.offset)
        curved = self.weight * chance * (1.0 - chance)
        return np.asarray((self.design.T * curved) @ self.design / self.total)


def fit_scale(odds: Floats, correct: Floats, weight: Floats, bounds: tuple[float, float]) -> float:
    """Return the factor of log odds, within bounds, that minimises the NLL; all arrays (n,)."""
    found = minimise(LogisticLoss(odds[:, None], correct, weight), np.ones(1), bounds)
    return float(found.parameters[0])


def fit_logistic(
    features: Floats, correct: Floats, weight: Floats, least: float = -np.inf
) -> LogisticFit:
    """Maximise the likelihood, with slopes of at least `least` (0 or minus infinity) and a free intercept.

    Parameters
    ----------
    features : float64 (n, n_features)
    correct, weight : float64 (n,), weighted correct ratings and weight of each point
    """
    middle = np.average(features, axis=0, weights=weight)
    scale = np.sqrt(np.average((features - middle) ** 2, axis=0, weights=weight))
    scale = np.where(scale > 0.0, scale, 1.0)
    design = np.column_stack([(features - middle) / scale, np.ones(len(weight))])
    start = np.zeros(design.shape[1])
    start[-1] = np.log(correct.sum() / (weight.sum() - correct.sum()))
    low = np.append(np.full(len(scale), least), -np.inf)
    found = minimise(LogisticLoss(design, correct, weight), start, (low, np.inf))
    plain = found.parameters[:-1] / scale
    intercept = found.parameters[-1] - float(plain @ middle)
    return LogisticFit(np.append(plain, intercept), found)


def separated(cells: Cells) -> bool:
    """Return whether all positives are at or above all negatives, so that an increasing logistic curve has no best slope."""
    correct_ratings = cells.correct > 0.0
    incorrect_ratings = cells.weight - cells.correct > 1e-12 * cells.weight
    if not correct_ratings.any() or not incorrect_ratings.any():
        return True
    mean = cells.mean
    return bool(mean[correct_ratings].min() >= mean[incorrect_ratings].max())


def cell_error(
    cells: Cells,
    features: Callable[[Floats], Floats],
    coefficients: Floats,
    refit: Callable[[Floats, Floats, Floats], Floats],
) -> float:
    """Bound the error of a fit to cell means, as the largest change of a probability over the cells.

    The bound is the sum of two parts. The first is the change if each cell's weight is at its two bounds, mean unchanged,
    instead of at its mean. The second is three standard deviations due to random positions of positives within their cell.

    Parameters
    ----------
    cells : Cells, non-empty
    features : scores (n,) to the curve's features (n, n_features)
    coefficients : float64 (n_features + 1,), the intercept last, as fitted to the means
    refit : scores, correct and weights to such coefficients
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
    inverse_hessian = np.linalg.pinv(
        (design.T * (cells.weight * here * (1.0 - here))) @ design, hermitian=True
    )
    noise = (
        inverse_hessian
        @ (reach.T * (cells.weight * here * (1.0 - here) * _dependence(cells)))
        @ reach
        @ inverse_hessian
    )
    deviation = np.sqrt(np.maximum(np.einsum("nd,de,ne->n", design, noise, design), 0.0))
    return float((moved + 3.0 * here * (1.0 - here) * deviation).max())


def why_no_curve(cells: Cells, falling: bool) -> str | None:
    """Return the reason why no logistic curve is optimal for the cells; None if one is.

    Parameters
    ----------
    cells : Cells, non-empty
    falling : whether the curve may decrease, so that positives below all negatives also separate the outcomes
    """
    reason = why_no_fit(cells)
    if reason is not None:
        return reason
    if np.ptp(log_odds(cells.mean)) < 1e-12:
        return "constant_scores"
    swapped = replace(cells, correct=cells.weight - cells.correct)
    return "separable" if separated(cells) or (falling and separated(swapped)) else None


def fit_diagnostics(
    cells: Cells,
    features: Floats,
    identity: Floats,
    fit: LogisticFit,
    names: Sequence[str],
) -> Result:
    """Return diagnostics of the fit and the uncertainty of its coefficients.

    Parameters
    ----------
    cells : Cells of the fit
    features : float64 (n_cells, n_features), of the cells' mean scores
    identity : float64 (n_features + 1,), coefficients that change nothing, the intercept last
    fit : LogisticFit
    names : of the coefficients, the intercept last

    Returns
    -------
    dict; standard errors are from the information at the optimum, with the stored variance of correct ratings: ratings
    of one unit in one cell are treated as fully dependent. None for a coefficient at its bound.
    """
    design = np.column_stack([features, np.ones(len(cells))])
    used = np.flatnonzero(fit.minimum.free).tolist()
    chance = sigmoid(design @ fit.coefficients)
    variance = cells.weight * chance * (1.0 - chance)
    x = design[:, used]
    inverse_hessian = np.linalg.pinv((x.T * variance) @ x, hermitian=True)
    spread = np.diag(
        inverse_hessian @ ((x.T * (variance * _dependence(cells))) @ x) @ inverse_hessian
    )
    errors = dict.fromkeys(names) | {
        names[place]: float(np.sqrt(max(each, 0.0)))
        for place, each in zip(used, spread, strict=True)
    }
    loss = LogisticLoss(design, cells.correct, cells.weight)
    return {
        "converged": fit.converged,
        "iterations": fit.minimum.iterations,
        "gradient_norm": fit.minimum.gradient_norm,
        "objective_before": loss.value_and_gradient(identity)[0],
        "objective_after": fit.minimum.value,
        "at_bound": len(used) < len(names),
        "standard_errors": errors,
        "standard_error_method": "information, ratings of a unit in a cell dependent",
    }


def _dependence(cells: Cells) -> Floats:
    """Return the ratio of the stored variance to that of independent ratings of weight one."""
    independent = cells.confidence * (1.0 - np.minimum(cells.mean, 1.0))
    safe = np.where(independent > 0.0, independent, 1.0)
    return np.maximum(np.where(independent > 0.0, cells.null_variance / safe, 1.0), 1.0)


def _spread_out(cells: Cells, chance: Floats) -> tuple[Floats, Floats, Floats]:
    """Split each cell's weight between its two bounds, mean unchanged; return scores, correct and weights, (2 n_cells,) each.

    Correct ratings are assigned to the two points in proportion to `chance` (2, n_cells), their probabilities of being correct.
    """
    width = cells.upper - cells.lower
    upper = np.divide(cells.mean - cells.lower, width, out=np.zeros(len(cells)), where=width > 0)
    share = np.stack([1.0 - np.clip(upper, 0.0, 1.0), np.clip(upper, 0.0, 1.0)])
    correct_ratings, incorrect_ratings = share * chance, share * (1.0 - chance)
    correct_ratings /= np.maximum(correct_ratings.sum(axis=0), 1e-300)
    incorrect_ratings /= np.maximum(incorrect_ratings.sum(axis=0), 1e-300)
    correct = correct_ratings * cells.correct
    weight = correct + incorrect_ratings * (cells.weight - cells.correct)
    keep = (weight > 0.0).ravel()
    score = np.stack([cells.lower, cells.upper])
    return score.ravel()[keep], correct.ravel()[keep], weight.ravel()[keep]
