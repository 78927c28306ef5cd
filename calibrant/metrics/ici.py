"""Integrated calibration index: mean distance of the scores from a smooth calibration curve, without bins.

The curve is a logistic regression on a natural cubic spline of the log odds of the score, with knots at the quantiles .05, .35, .65 and .95;
with fewer than four distinct knots it is a line.
Other smoothers, such as loess, give other values. `e50` and `e90` are the median and the quantile .9 of the distances. There is no
interval: intervals of smoothed errors do not keep their promise at small n. From stored cells the score is the mean of its cell.

Source: Austin, Steyerberg (Statistics in Medicine 2019); knots of Harrell (Regression Modeling Strategies, 2015).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.calibrators.cell_fits import log_odds, logistic
from calibrant.calibrators.logistic import LogisticLoss, separated
from calibrant.calibrators.solver import minimise
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells, equal_mass_groups
from calibrant.core.view import NoResultError, View
from calibrant.inference.null_reference import (
    NullReference,
    drawn_correct,
    independent,
    quantiles_of,
)
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    MetricValue,
    bounded,
    each_division,
    scored_cells,
)
from calibrant.metrics.weak_calibration import MIN_EXPECTED, expected_outcomes

SMOOTHER = "logistic regression on a natural cubic spline of the log odds, 4 knots"
_KNOTS = np.array([0.05, 0.35, 0.65, 0.95])
# Measured: with fewer, up to .09 of calibrated models are above the reference.
MIN_UNITS = 100
_DISTINCT, _FARTHEST = 1e-6, 1e3
_DRAWS, _NULL_CELLS, _STEPS, _DAMPING = 500, 250, 20, 1e-12


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


def curve_of(cells: Cells) -> Floats:
    """Return the smooth curve of largest likelihood at each cell's score; where a threshold separates the outcomes, its limit.

    Raises
    ------
    NoResultError
        A part of the scores separates the outcomes, so no curve has the largest likelihood.
    """
    swapped = replace(cells, correct=cells.weight - cells.correct)
    if separated(cells) or separated(swapped):
        return cells.rate
    design = orthonormal_terms(cells).T * np.sqrt(cells.weight.sum())
    loss = LogisticLoss(design, cells.correct, cells.weight)
    found = minimise(loss, np.zeros(design.shape[1]))
    if not found.converged or np.abs(found.parameters).max() > _FARTHEST:
        raise NoResultError(
            "separable", "a part of the scores separates the outcomes, so no curve fits best"
        )
    return logistic(design @ found.parameters)


def orthonormal_terms(cells: Cells) -> Floats:
    """Return terms that give the same curve as those of the spline, with a system that rounding does not spoil."""
    root = np.sqrt(cells.weight)
    return np.linalg.qr((_terms(log_odds(cells.mean), cells.weight) * root).T)[0].T / root


def _terms(odds: Floats, weight: Floats) -> Floats:
    """Return the terms of the spline; a line where scores are too few for its knots, a constant where they are equal."""
    knots = weighted_quantiles(odds, weight, _KNOTS)
    if np.diff(knots).min() >= _DISTINCT:
        return spline_terms(odds, knots)
    line = np.stack([np.ones(len(odds)), odds])
    return line if np.ptp(odds) >= _DISTINCT else line[:1]


def distances(cells: Cells) -> Floats:
    """Return each cell's distance of the score from the curve."""
    return np.asarray(np.abs(curve_of(cells) - cells.mean))


def of_cells(view: View, cells: Cells) -> float:
    """Return the index of cells."""
    return float(np.average(distances(cells), weights=cells.weight))


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    distance = distances(cells)
    e50, e90 = weighted_quantiles(distance, cells.weight, np.array([0.5, 0.9])).tolist()
    extra: dict[str, object] = {"smoother": SMOOTHER, "e50": e50, "e90": e90}
    if not view.is_raw:
        extra |= bounded(None, "curve_of_cells")
    return MetricValue(float(np.average(distance, weights=cells.weight)), extra)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the index of a calibrated model: that of the curves of outcomes drawn from the scores.

    Raises
    ------
    NoResultError
        Fewer than 100 units, or than ten expected independent outcomes of one kind.
    """
    if view.counts["n_units"] < MIN_UNITS or expected_outcomes(view) < MIN_EXPECTED:
        raise NoResultError(
            "too_few_units", "fewer than 100 units, or ten expected outcomes of one kind"
        )
    cells = independent(scored_cells(view))
    if len(cells) > _NULL_CELLS:
        cells = cells.at_places(equal_mass_groups(cells.weight, _NULL_CELLS))
    curves = _curves_of(cells, drawn_correct(cells, _DRAWS, seed))
    return quantiles_of(np.abs(curves - cells.mean) @ cells.weight / cells.weight.sum())


def _curves_of(cells: Cells, outcomes: Floats) -> Floats:
    """Return the curve of each row of outcomes, (n_draws, n_cells), by damped Newton steps from the diagonal.

    Where a row's outcomes are separated its curve has no end; it is then as near its limit as these steps come.
    """
    terms = orthonormal_terms(cells)
    squares = (terms[:, None] * terms[None]).reshape(-1, len(cells)).T
    odds = np.broadcast_to(log_odds(cells.mean), outcomes.shape).copy()
    loss = _losses(cells, outcomes, odds)
    damping = np.full(len(odds), _DAMPING)
    for _ in range(_STEPS):
        rate = logistic(odds)
        slope = (outcomes - cells.weight * rate) @ terms.T
        curvature = (cells.weight * rate * (1.0 - rate)) @ squares
        trial = odds + _solved(curvature, slope, damping) @ terms
        found = _losses(cells, outcomes, trial)
        better = found <= loss
        odds[better], loss[better] = trial[better], found[better]
        damping *= np.where(better, 0.1, 100.0)
        np.maximum(damping, _DAMPING, out=damping)
    return logistic(odds)


def _losses(cells: Cells, outcomes: Floats, odds: Floats) -> Floats:
    """Return the logistic loss of each row."""
    return np.asarray(np.logaddexp(0.0, odds) @ cells.weight - (outcomes * odds).sum(axis=1))


def _solved(curvature: Floats, slope: Floats, damping: Floats) -> Floats:
    """Return Newton steps, damped by shares of the curvatures' traces."""
    matrix = curvature.reshape(len(slope), slope.shape[1], -1)
    added = damping * np.trace(matrix, axis1=1, axis2=2) + np.finfo(float).tiny
    matrix = matrix + added[:, None, None] * np.eye(slope.shape[1])
    return np.asarray(np.linalg.solve(matrix, slope[..., None])[..., 0])


METRIC = FormulaMetric(
    slug="ici",
    title="Integrated calibration index",
    formula="Σ_i w_i |c(s_i) - s_i| / W, c a smooth logistic curve",
    search_words={"ICI": "", "E50": "", "E90": "", "calibration curve": ""},
    source="Austin, Steyerberg (Statistics in Medicine 2019)",
    options=("scope",),
    read=read,
    of_cells=each_division(of_cells),
    no_interval="estimator_not_replicated",
    null=null,
    null_of_units=True,
)
