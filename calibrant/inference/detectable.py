"""Smallest miscalibration that the available data detect with 80 % power at the 5 % level.

"No alarm" and "not above the null reference" do not mean that a model is calibrated. The sizes here say which errors, with these data,
a test of intercept and slope would hardly have missed, in either direction. The metrics are other tests: an error of this size may well be
below their null reference. The sizes are those of Wald tests of logit(accuracy) = intercept + slope · logit(score), with the variance under the
changed model.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.cells import Cells
from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.inference.gap_uncertainty import design_effect_of, has_named_units
from calibrant.inference.null_reference import few

POWER, LEVEL = 0.80, 0.05
_EDGE = 1e-9
_STEPS, _LARGEST = 60, 20.0


def detectable(view: View, times: float = 1.0) -> Result:
    """Return the smallest errors that are detected with 80 % power by two-sided tests at the 5 % level.

    Parameters
    ----------
    view : View
    times : how many times the data, as of a longer window with as many predictions a day

    Returns
    -------
    dict: `n_effective`; `intercept` of logit(accuracy) = intercept + logit(score); `slope`, as its distance from 1, the intercept being
    free; `local_error`, the gap of one bin (Bonferroni over bins with data) that is detected in bins that hold half of the data; or
    None in each with a `reason`
    """
    nothing = {"n_effective": None, "intercept": None, "slope": None, "local_error": None}
    try:
        cells = view.grid_cells()
        effect = _effect(view)
        table = view.table().cells
    except NoResultError as rejection:
        return nothing | {"reason": rejection.reason}
    cells = few(cells.select(cells.weight > 0))
    if not len(cells):
        return nothing | {"reason": "no_data"}
    factor = effect / times
    return {
        "n_effective": float(cells.weight.sum() ** 2 / cells.weight_squared.sum() / factor),
        "intercept": _smallest(cells, factor, of_slope=False),
        "slope": _smallest(cells, factor, of_slope=True),
        "local_error": _of_bins(table, factor),
    }


def _effect(view: View) -> float:
    """Return the design effect of the view's own bins; 1 where every prediction is a unit.

    Raises
    ------
    NoResultError
        Units were named, and their dependence is not known.
    """
    return design_effect_of(view) if has_named_units(view) else 1.0


def _smallest(cells: Cells, factor: float, of_slope: bool) -> float | None:
    """Return the smallest change that is detected in either direction; None where there is no finite one.

    The variance is that under the changed model, so the size is where both agree.
    """
    sizes = [_solved(cells, factor, of_slope, sign) for sign in (-1.0, 1.0)]
    return None if None in sizes else max(size for size in sizes if size is not None)


def _solved(cells: Cells, factor: float, of_slope: bool, sign: float) -> float | None:
    size = 0.0
    for _ in range(_STEPS):
        change = min(size, 1.0) * sign if of_slope else size * sign
        at = (0.0, 1.0 + change) if of_slope else (change, 1.0)
        found = _size(_variances(cells, *at)[int(of_slope)] * factor)
        if found is None or found > _LARGEST:
            return None
        if abs(found - size) < _EDGE:
            break
        size = found
    return size


def _variances(cells: Cells, intercept: float, slope: float) -> tuple[float, float]:
    """Return the variances of the intercept alone, and of the slope with a free intercept, for a model with this true line."""
    score = np.clip(cells.mean, _EDGE, 1.0 - _EDGE)
    odds = np.log(score / (1.0 - score))
    rate = scipy.special.expit(intercept + slope * odds)
    chance = rate * (1.0 - rate)
    terms = np.stack([np.ones(len(odds)), odds])
    bread = (terms * (cells.weight * chance)) @ terms.T
    filling = (terms * (cells.weight_squared * chance)) @ terms.T
    alone = float(filling[0, 0] / bread[0, 0] ** 2)
    if np.linalg.cond(bread) > 1.0 / _EDGE:
        return alone, float("inf")
    inverse = np.linalg.inv(bread)
    return alone, float((inverse @ filling @ inverse)[1, 1])


def _size(variance: float, tests: int = 1) -> float | None:
    """Return the effect that is detected with the stated power, None where there is no finite one."""
    if not np.isfinite(variance):
        return None
    normal = scipy.special.ndtri
    reach = normal(1.0 - LEVEL / (2.0 * tests)) + normal(POWER)
    return float(reach * np.sqrt(variance))


def _of_bins(table: Cells, factor: float) -> float | None:
    """Return the gap that is detected in bins that together hold half of the weight; None if it exceeds 1."""
    filled = table.select(table.weight > 0)
    if not len(filled):
        return None
    mean = np.clip(filled.mean, 0.0, 1.0)
    variance = filled.weight_squared * mean * (1.0 - mean) / filled.weight**2 * factor
    order = np.argsort(variance)
    half = np.searchsorted(np.cumsum(filled.weight[order]), 0.5 * filled.weight.sum())
    found = _size(float(variance[order][min(half, len(order) - 1)]), len(filled))
    return found if found is not None and found <= 1.0 else None
