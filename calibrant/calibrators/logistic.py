"""Logistic regression on few weighted points, accurate to rounding error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.calibrators.cell_fits import logistic as sigmoid
from calibrant.calibrators.solver import Minimum, minimise
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells


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
