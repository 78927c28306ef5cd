"""Logistic recalibration of scores: log odds of the outcome = intercept + slope · log odds of the score, by Newton's method.

Source: Cox (Biometrika 1958); calibration intercept and slope of Van Calster et al. (BMC Medicine 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.view import NoResultError

Floats = NDArray[np.float64]
CLIP = 1e-12
_STEPS, _MAX_STEP, _CLOSE, _FARTHEST = 100, 1.0, 1e-12, 60.0


def log_odds(score: Floats) -> Floats:
    """Return log odds of scores, of which those within 1e-12 of 0 and 1 are moved to that distance."""
    return np.asarray(scipy.special.logit(np.clip(score, CLIP, 1.0 - CLIP)))


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
        return np.asarray(
            scipy.special.expit(odds + terms(odds, len(self.coefficients)).T @ self.coefficients)
        )

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


def score_variance(odds: Floats) -> Floats:
    """Return p (1 - p) of log odds."""
    rate = scipy.special.expit(odds)
    return np.asarray(rate * (1.0 - rate))


def recalibrate(score: Floats, weight: Floats, correct: Floats, n_terms: int) -> Recalibration:
    """Fit by maximum likelihood; the first term is the intercept, the second the slope less 1.

    Parameters
    ----------
    score, weight, correct : float64 (n_cells,), scores, their weights and weighted sums of outcomes
    n_terms : 1: the slope is fixed at 1; 2: both are fitted

    Raises
    ------
    NoResultError
        All outcomes are equal, all scores are equal, or scores separate the outcomes.
    """
    odds = log_odds(score)
    design, value = terms(odds, n_terms), np.zeros(n_terms)
    _reject_undetermined(odds, weight, correct, n_terms)
    for _ in range(_STEPS):
        rate = scipy.special.expit(odds + value @ design)
        information = (design * (weight * rate * (1.0 - rate))) @ design.T
        if np.abs(value).max() > _FARTHEST or np.linalg.cond(information) > 1e14:
            raise NoResultError(
                "separable",
                "a threshold of the score separates the outcomes, so no slope is largest",
            )
        step = np.linalg.solve(information, design @ (correct - weight * rate))
        value = value + step * min(1.0, _MAX_STEP / max(float(np.abs(step).max()), _CLOSE))
        if np.abs(step).max() < _CLOSE * max(1.0, float(np.abs(value).max())):
            return Recalibration(value, information)
    raise NoResultError("not_converged", "the fit of intercept and slope did not converge")


def _reject_undetermined(odds: Floats, weight: Floats, correct: Floats, n_terms: int) -> None:
    total, outcomes = float(weight.sum()), float(correct.sum())
    if not 1e-12 * total < outcomes < (1.0 - 1e-12) * total:
        raise NoResultError("one_outcome", "all outcomes are equal: they determine no intercept")
    if float((weight * score_variance(odds)).sum()) < 1e-9 * total:
        raise NoResultError("no_variance", "every score is 0 or 1: the log odds are infinite")
    if n_terms == 2 and np.ptp(odds) < 1e-9:
        raise NoResultError("constant_scores", "all scores are equal: they determine no slope")
