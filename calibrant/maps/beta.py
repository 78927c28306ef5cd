"""Beta calibration: a rising curve with three parameters that can bend at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.cells import Cells
from calibrant.maps.base import CLIP, Floats, Map, Options, Solved, logistic, why_not
from calibrant.maps.logistic import Logistic, cell_error, fit_logistic, separated

FACES = ((0, 1), (0,), (1,), ())


def solve(cells: Cells, options: Options) -> Solved:
    """a, b at least 0 and c: the best of the free fit and, where that falls, of those with a, b or both at 0.

    Parameters
    ----------
    cells : Cells, filled ones
    options : none are read

    Returns
    -------
    Solved
    """
    reason = why_not(cells)
    if reason is None and np.ptp(np.clip(cells.mean, CLIP, 1.0 - CLIP)) < 1e-12:
        reason = "constant_scores"
    if reason is None and separated(cells):
        reason = "separable"
    if reason is not None:
        return Solved(None, reason)
    parameters, fit, at_bound = _best(cells.mean, cells.correct, cells.weight)
    details = {
        "converged": fit.converged,
        "iterations": fit.iterations,
        "gradient_norm": fit.gradient_norm,
        "at_bound": at_bound,
        "error_bound": cell_error(cells, _features, _coefficients(parameters), _refit),
    }
    return Solved(parameters, None, details, ["at_bound"] if at_bound else [])


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """1 / (1 + exp(-(a ln p - b ln(1 - p) + c)))."""
    a, b = _features(score, parameters["clip"]).T
    return logistic(parameters["a"] * a + parameters["b"] * b + parameters["c"])


def _features(score: Floats, clip: float = CLIP) -> Floats:
    held = np.clip(score, clip, 1.0 - clip)
    return np.stack([np.log(held), -np.log1p(-held)], axis=1)


def _best(score: Floats, correct: Floats, weight: Floats) -> tuple[dict[str, Any], Logistic, bool]:
    """The constrained maximum: inside, or on the best of the faces, since the likelihood is concave."""
    features = _features(score)
    found = []
    for free in FACES:
        fit = fit_logistic(features[:, list(free)], correct, weight)
        if fit.converged and (fit.coefficients[:-1] >= 0.0).all():
            found.append((free, fit))
            if len(free) == 2:
                break
    free, fit = min(found, key=lambda entry: entry[1].loss)
    ab = [0.0, 0.0]
    for place, value in zip(free, fit.coefficients[:-1], strict=True):
        ab[place] = float(value)
    parameters = {"a": ab[0], "b": ab[1], "c": float(fit.coefficients[-1]), "clip": CLIP}
    return parameters, fit, len(free) < 2


def _coefficients(parameters: Mapping[str, Any]) -> Floats:
    return np.array([parameters[name] for name in ("a", "b", "c")])


def _refit(score: Floats, correct: Floats, weight: Floats) -> Floats:
    return _coefficients(_best(score, correct, weight)[0])


MAP = Map(
    slug="beta",
    title="Beta calibration",
    source="Kull, Silva Filho, Flach (AISTATS 2017)",
    input="probability",
    objective="nll",
    scopes=("positive", "class", "top_label"),
    solve=solve,
    at=at,
)
