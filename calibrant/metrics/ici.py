"""Integrated calibration index: mean distance of the scores from a smooth calibration curve, without bins.

The curve is a logistic regression on a natural cubic spline of the log odds of the score, with knots at the quantiles .05, .35, .65 and .95;
with fewer than four distinct knots it is a line.
Other smoothers, such as loess, give other values. `e50` and `e90` are the median and the quantile .9 of the distances. There is no
interval: intervals of smoothed errors do not keep their promise at small n. From stored cells the score is the mean of its cell.

Source: Austin, Steyerberg (Statistics in Medicine 2019); knots of Harrell (Regression Modeling Strategies, 2015).
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError, View
from calibrant.estimators.logistic_recalibration import log_odds
from calibrant.inference.null_reference import NullReference, few, quantiles_of
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    MetricValue,
    bounded,
    each_division,
    scored_cells,
)
from calibrant.metrics.weak_calibration import MIN_EXPECTED, expected_outcomes

Floats = NDArray[np.float64]
SMOOTHER = "logistic regression on a natural cubic spline of the log odds, 4 knots"
_KNOTS = np.array([0.05, 0.35, 0.65, 0.95])
# Measured: with fewer, up to .09 of calibrated models are above the reference.
MIN_UNITS = 100
_DRAWS = 500
_STEPS, _CLOSE, _FARTHEST, _DISTINCT = 100, 1e-10, 40.0, 1e-6


def spline_terms(odds: Floats, knots: Floats) -> Floats:
    """Return 1, the log odds, and the terms of a natural cubic spline that is linear beyond the outer knots; float64 (n_knots, n).

    Source
    ------
    Harrell, Regression Modeling Strategies (2015), eq. 2.25.
    """
    last, before = knots[-1], knots[-2]

    def cube(knot: float) -> Floats:
        return np.maximum(odds - knot, 0.0) ** 3

    curved = [
        (
            cube(knot)
            - cube(before) * (last - knot) / (last - before)
            + cube(last) * (before - knot) / (last - before)
        )
        / (last - knots[0]) ** 2
        for knot in knots[:-2]
    ]
    return np.stack([np.ones(len(odds)), odds, *curved])


def weighted_quantiles(values: Floats, weight: Floats, shares: Floats) -> Floats:
    """Return the smallest values at or below which these shares of the weight are."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    places = np.searchsorted(below, shares * below[-1] * (1.0 - 1e-12))
    return np.asarray(values[order][np.minimum(places, len(values) - 1)])


def curve_of(cells: Cells) -> tuple[Floats, Floats]:
    """Return the smooth curve at each cell's score, and the terms of its spline.

    Raises
    ------
    NoResultError
        The fit did not converge.
    """
    odds, weight, correct = log_odds(cells.mean), cells.weight, cells.correct
    terms = _terms(odds, weight)
    if not 0.0 < correct.sum() < weight.sum():
        return np.full(len(odds), float(correct.sum() > 0.0)), terms
    # Orthonormal terms give the same curve, and a system that rounding does not spoil.
    terms = np.linalg.qr((terms * np.sqrt(weight)).T)[0].T / np.sqrt(weight)
    return _fitted(terms, weight, correct), terms


def _terms(odds: Floats, weight: Floats) -> Floats:
    """Return the terms of the spline; a line where scores are too few for its knots, a constant where they are equal."""
    knots = weighted_quantiles(odds, weight, _KNOTS)
    if np.diff(knots).min() >= _DISTINCT:
        return spline_terms(odds, knots)
    line = np.stack([np.ones(len(odds)), odds])
    return line if np.ptp(odds) >= _DISTINCT else line[:1]


def _fitted(terms: Floats, weight: Floats, correct: Floats) -> Floats:
    """Return the curve of largest likelihood; where a threshold separates the outcomes, its limit."""
    value = np.zeros(len(terms))
    for _ in range(_STEPS):
        rate = scipy.special.expit(value @ terms)
        information = (terms * (weight * rate * (1.0 - rate))) @ terms.T
        step = np.linalg.lstsq(information, terms @ (correct - weight * rate), rcond=None)[0]
        largest = float(np.abs(step @ terms).max())
        value = value + step * min(1.0, 2.0 / max(largest, _CLOSE))
        if largest < _CLOSE or np.abs(value @ terms).max() > _FARTHEST:
            return np.asarray(scipy.special.expit(value @ terms))
    raise NoResultError("not_converged", "the fit of the curve did not converge")


def distances(cells: Cells) -> Floats:
    """Return each cell's distance of the score from the curve."""
    return np.asarray(np.abs(curve_of(cells)[0] - cells.mean))


def of_cells(view: View, cells: Cells) -> float:
    """Return the index of cells."""
    return float(np.average(distances(cells), weights=cells.weight))


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    distance = distances(cells)
    e50, e90 = weighted_quantiles(distance, cells.weight, np.array([0.5, 0.9])).tolist()
    extra: dict[str, object] = {"scope": view.scope, "smoother": SMOOTHER, "e50": e50, "e90": e90}
    if not view.is_raw:
        extra |= bounded(None, "curve_of_cells")
    return MetricValue(float(np.average(distance, weights=cells.weight)), extra)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the index of a calibrated model: the curve's deviation from the diagonal is normal to first order.

    Raises
    ------
    NoResultError
        Fewer than 100 units, or than ten expected independent outcomes of one kind.
    """
    if view.counts["n_units"] < MIN_UNITS or expected_outcomes(view) < MIN_EXPECTED:
        raise NoResultError(
            "too_few_units", "fewer than 100 units, or ten expected outcomes of one kind"
        )
    cells = few(scored_cells(view))
    terms, score = curve_of(cells)[1], np.clip(cells.mean, 0.0, 1.0)
    slope = score * (1.0 - score)
    inverse = np.linalg.inv((terms * (cells.weight * slope)) @ terms.T)
    spread = inverse @ ((terms * cells.null_variance) @ terms.T) @ inverse
    draws = np.random.default_rng(seed).multivariate_normal(
        np.zeros(len(terms)), spread, _DRAWS, method="eigh"
    )
    return quantiles_of(np.abs(draws @ terms * slope) @ cells.weight / cells.weight.sum())


METRIC = FormulaMetric(
    slug="ici",
    title="Integrated calibration index",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="Σ_i w_i |c(s_i) - s_i| / W, c a smooth logistic curve",
    exact=False,
    search_words={"ICI": "", "E50": "", "E90": "", "calibration curve": ""},
    source="Austin, Steyerberg (Statistics in Medicine 2019)",
    options=("scope",),
    read=read,
    of_cells=each_division(of_cells),
    no_interval="estimator_not_replicated",
    null=null,
    null_of_units=True,
)
