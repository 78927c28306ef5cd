"""Beta calibration: an increasing curve with three parameters that can bend at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.calibrators.base import ONE_SCORE, FitResult, Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import CLIP, logistic
from calibrant.calibrators.logistic import cell_error, fit_diagnostics, fit_logistic, why_no_curve
from calibrant.core.cells import Cells

IDENTITY = np.array([1.0, 1.0, 0.0])
NAMES = ("a", "b", "c")


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit a and b, at least 0 each, and c.

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
    features = _features(cells.mean)
    fit = fit_logistic(features, cells.correct, cells.weight, least=0.0)
    details = fit_diagnostics(cells, features, IDENTITY, fit, NAMES)
    details["error_bound"] = cell_error(cells, _features, fit.coefficients, _refit)
    parameters = dict(zip(NAMES, fit.coefficients.tolist(), strict=True)) | {"clip": CLIP}
    return FitResult(parameters, None, details, ["at_bound"] if details["at_bound"] else [])


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return 1 / (1 + exp(-(a ln p - b ln(1 - p) + c)))."""
    a, b = _features(score, parameters["clip"]).T
    return logistic(parameters["a"] * a + parameters["b"] * b + parameters["c"])


def _features(score: Floats, clip: float = CLIP) -> Floats:
    clipped = np.clip(score, clip, 1.0 - clip)
    return np.stack([np.log(clipped), -np.log1p(-clipped)], axis=1)


def _refit(score: Floats, correct: Floats, weight: Floats) -> Floats:
    return fit_logistic(_features(score), correct, weight, least=0.0).coefficients


MAP = MapMethod(
    slug="beta",
    title="Beta calibration",
    source="Kull, Silva Filho, Flach (AISTATS 2017)",
    input="probability",
    objective="nll",
    scopes=ONE_SCORE,
    solve=solve,
    at=at,
)
