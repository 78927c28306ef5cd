"""Platt scaling: a logistic curve of the log odds, fitted to labels 0 and 1 without smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.calibrators.base import ONE_SCORE, FitResult, Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import CLIP, log_odds, logistic
from calibrant.calibrators.logistic import cell_error, fit_diagnostics, fit_logistic, why_no_curve
from calibrant.core.cells import Cells

IDENTITY = np.array([1.0, 0.0])
NAMES = ("slope", "intercept")


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit slope and intercept. Scores enter as the mean of their cell; `error_bound` bounds the resulting error.

    Parameters
    ----------
    cells : Cells, non-empty
    options : not used

    Returns
    -------
    FitResult
    """
    reason = why_no_curve(cells, falling=True)
    if reason is not None:
        return FitResult(None, reason)
    features = _features(cells.mean)
    fit = fit_logistic(features, cells.correct, cells.weight)
    details = fit_diagnostics(cells, features, IDENTITY, fit, NAMES)
    if not fit.converged:
        return FitResult(None, "not_converged", details)
    slope, intercept = fit.coefficients.tolist()
    parameters = {"slope": slope, "intercept": intercept, "clip": CLIP}
    details["error_bound"] = cell_error(cells, _features, fit.coefficients, _refit)
    return FitResult(parameters, None, details, ["decreasing"] if slope < 0.0 else [])


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return 1 / (1 + exp(-(slope logit(p) + intercept)))."""
    odds = log_odds(score, parameters["clip"])
    return logistic(parameters["slope"] * odds + parameters["intercept"])


def _features(score: Floats) -> Floats:
    return log_odds(score)[:, None]


def _refit(score: Floats, correct: Floats, weight: Floats) -> Floats:
    return fit_logistic(_features(score), correct, weight).coefficients


MAP = MapMethod(
    slug="platt",
    title="Platt scaling",
    source="Platt (1999), on the log odds and with plain labels",
    input="logit",
    objective="nll",
    scopes=ONE_SCORE,
    solve=solve,
    at=at,
)
