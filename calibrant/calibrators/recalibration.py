"""Logistic recalibration of scores: log odds of the outcome = intercept + slope · log odds of the score.

Source: Cox (Biometrika 1958); calibration intercept and slope of Van Calster et al. (BMC Medicine 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant.calibrators.cell_fits import log_odds, logistic
from calibrant.calibrators.logistic import LogisticLoss, separated
from calibrant.calibrators.solver import minimise
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError


@dataclass(frozen=True)
class Recalibration:
    """A fit with what its standard errors need.

    Attributes
    ----------
    coefficients : float64 (n_terms,), added to the log odds of the score: of 1, and with a slope of those log odds
    information : float64 (n_terms, n_terms), negative second derivatives of the log-likelihood
    """

    coefficients: Floats
    information: Floats

    def rates(self, score: Floats) -> Floats:
        """Return the recalibrated scores."""
        odds = log_odds(score)
        return logistic(odds + terms(odds, len(self.coefficients)).T @ self.coefficients)

    def covariance(self, gradients: Floats) -> Floats:
        """Return the sandwich covariance of the coefficients.

        Parameters
        ----------
        gradients : float64 (n_groups, n_terms), of the log-likelihood of each independent group
        """
        n = len(gradients)
        deviations = gradients - gradients.mean(axis=0)
        inverse = np.linalg.inv(self.information)
        return np.asarray(inverse @ (deviations.T @ deviations * n / (n - 1.0)) @ inverse)


def terms(odds: Floats, n_terms: int) -> Floats:
    """Return 1 and, for two terms, the log odds; float64 (n_terms, n)."""
    return np.stack([np.ones(len(odds)), odds])[:n_terms]


def recalibrate(cells: Cells, n_terms: int) -> Recalibration:
    """Fit by maximum likelihood; the first term is the intercept, the second the slope less 1.

    Parameters
    ----------
    cells : Cells, non-empty
    n_terms : 1: the slope is fixed at 1; 2: both are fitted

    Raises
    ------
    NoResultError
        All outcomes are equal, all scores are equal, or scores separate the outcomes.
    """
    odds = log_odds(cells.mean)
    _reject_undetermined(cells, odds, n_terms)
    loss = LogisticLoss(terms(odds, n_terms).T, cells.correct, cells.weight, odds)
    found = minimise(loss, np.zeros(n_terms))
    if not found.converged:
        raise NoResultError("not_converged", "the fit of intercept and slope did not converge")
    return Recalibration(found.parameters, loss.hessian(found.parameters) * loss.total)


def _reject_undetermined(cells: Cells, odds: Floats, n_terms: int) -> None:
    total, outcomes, chance = cells.weight.sum(), cells.correct.sum(), logistic(odds)
    if not 1e-12 * total < outcomes < (1.0 - 1e-12) * total:
        raise NoResultError("one_outcome", "all outcomes are equal: they determine no intercept")
    if (cells.weight * chance * (1.0 - chance)).sum() < 1e-9 * total:
        raise NoResultError("no_variance", "every score is 0 or 1: the log odds are infinite")
    if n_terms == 1:
        return
    if np.ptp(odds) < 1e-9:
        raise NoResultError("constant_scores", "all scores are equal: they determine no slope")
    if separated(cells) or separated(replace(cells, correct=cells.weight - cells.correct)):
        detail = "a threshold of the score separates the outcomes, so no slope is largest"
        raise NoResultError("separable", detail)
