"""Platt scaling: a logistic curve of the log odds, fitted to plain labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.cells import Cells
from calibrant.maps.base import CLIP, Floats, Map, Options, Solved, log_odds, logistic, why_not
from calibrant.maps.logistic import Logistic, cell_error, fit_logistic, separated


def solve(cells: Cells, options: Options) -> Solved:
    """Slope and intercept. Scores enter as the mean of their cell; `error_bound` says what that may cost.

    Parameters
    ----------
    cells : Cells, filled ones
    options : none are read

    Returns
    -------
    Solved
    """
    reason = why_not(cells)
    if reason is None and np.ptp(log_odds(cells.mean)) < 1e-12:
        reason = "constant_scores"
    if reason is None and (separated(cells) or separated(_reversed(cells))):
        reason = "separable"
    if reason is not None:
        return Solved(None, reason)
    fit = fit_logistic(_features(cells.mean), cells.correct, cells.weight)
    if not fit.converged:
        return Solved(None, "not_converged", _how(fit))
    slope, intercept = fit.coefficients.tolist()
    parameters = {"slope": slope, "intercept": intercept, "clip": CLIP}
    warnings = ["decreasing"] if slope < 0.0 else []
    bound = cell_error(cells, _features, fit.coefficients, _refit)
    return Solved(parameters, None, _how(fit) | {"error_bound": bound}, warnings)


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """1 / (1 + exp(-(slope logit(p) + intercept)))."""
    odds = log_odds(score, parameters["clip"])
    return logistic(parameters["slope"] * odds + parameters["intercept"])


def _reversed(cells: Cells) -> Cells:
    """The same weights with hits and misses exchanged."""
    swapped = {name: getattr(cells, name) for name in Cells.__dataclass_fields__}
    return Cells(**(swapped | {"correct": cells.weight - cells.correct}))


def _how(fit: Logistic) -> dict[str, Any]:
    return {
        "converged": fit.converged,
        "iterations": fit.iterations,
        "gradient_norm": fit.gradient_norm,
    }


def _features(score: Floats) -> Floats:
    return log_odds(score)[:, None]


def _refit(score: Floats, correct: Floats, weight: Floats) -> Floats:
    return fit_logistic(_features(score), correct, weight).coefficients


MAP = Map(
    slug="platt",
    title="Platt scaling",
    source="Platt (1999), on the log odds and with plain labels",
    input="logit",
    objective="nll",
    scopes=("positive", "class", "top_label"),
    solve=solve,
    at=at,
)
