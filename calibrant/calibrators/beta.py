"""Beta calibration: an increasing curve with three parameters that can bend at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.calibrators.base import FitResult, Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import CLIP, logistic
from calibrant.calibrators.logistic import (
    LogisticFit,
    cell_error,
    fit_diagnostics,
    fit_logistic,
    why_no_curve,
)
from calibrant.core.cells import Cells

FACES: tuple[tuple[int, ...], ...] = ((0, 1), (0,), (1,), ())
IDENTITY = np.array([1.0, 1.0, 0.0])
NAMES = ("a", "b", "c")


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit a, b at least 0 and c: the best of the free fit and, if that violates a bound, of those with a, b or both at 0.

    Parameters
    ----------
    cells : Cells, non-empty
    options : not used

    Returns
    -------
    FitResult
    """
    reason = why_no_curve(cells, falling=False)
    if reason is not None:
        return FitResult(None, reason)
    coefficients, fit, free = _best(cells.mean, cells.correct, cells.weight)
    details = fit_diagnostics(cells, _features(cells.mean), IDENTITY, fit, NAMES, free)
    details["error_bound"] = cell_error(cells, _features, coefficients, _refit)
    parameters = dict(zip(NAMES, coefficients.tolist(), strict=True)) | {"clip": CLIP}
    return FitResult(parameters, None, details, ["at_bound"] if details["at_bound"] else [])


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return 1 / (1 + exp(-(a ln p - b ln(1 - p) + c)))."""
    a, b = _features(score, parameters["clip"]).T
    return logistic(parameters["a"] * a + parameters["b"] * b + parameters["c"])


def _features(score: Floats, clip: float = CLIP) -> Floats:
    clipped = np.clip(score, clip, 1.0 - clip)
    return np.stack([np.log(clipped), -np.log1p(-clipped)], axis=1)


def _best(
    score: Floats, correct: Floats, weight: Floats
) -> tuple[Floats, LogisticFit, tuple[int, ...]]:
    """Return the constrained maximum: inside, or on the best of the faces, since the likelihood is concave.

    Returns
    -------
    coefficients : float64 (3,), a and b, 0 if fixed, and c
    fit : LogisticFit of the free ones
    free : which of a and b are free
    """
    features = _features(score)
    found = []
    for free in FACES:
        fit = fit_logistic(features[:, list(free)], correct, weight)
        if fit.converged and (fit.coefficients[:-1] >= 0.0).all():
            found.append((free, fit))
            if len(free) == 2:
                break
    free, fit = min(found, key=lambda entry: entry[1].loss)
    coefficients = np.zeros(3)
    coefficients[[*free, 2]] = fit.coefficients
    return coefficients, fit, free


def _refit(score: Floats, correct: Floats, weight: Floats) -> Floats:
    return _best(score, correct, weight)[0]


MAP = MapMethod(
    slug="beta",
    title="Beta calibration",
    source="Kull, Silva Filho, Flach (AISTATS 2017)",
    input="probability",
    objective="nll",
    scopes=("positive", "class", "top_label"),
    solve=solve,
    at=at,
)
