"""Spline calibration: the gap of the cumulated accuracy as a natural cubic spline of the quantile; its slope corrects the score.

Sorted by score, let h(t) be the sum of (correct - score) over the lowest share t of the samples, divided by all. Its slope at
a score's quantile is the gap there. A natural cubic spline with equidistant knots is fitted to h by least squares; a score maps
to itself plus the spline's slope at its quantile.

Unlike the publication, the correction is multiplied by a factor in [0, 1], the minimum of Stein's unbiased estimate of the squared
error (`shrinkage`; 1 with `shrunk=False`). The factor falls to 0 where the gaps are those of chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.calibrators.cell_fits import polygon_at, why_no_fit
from calibrant.calibrators.map_losses import own_scores
from calibrant.calibrators.map_method import ONE_SCORE, FitResult, MapMethod, Options
from calibrant.calibrators.shrinkage import MIN_CLASS_UNITS, UNITS_A_PARAMETER
from calibrant.core.arrays import Floats, Ints
from calibrant.core.cells import Cells
from calibrant.core.view import View

# Points of the polygon: more would make a response larger, not a map better.
MAX_POINTS = 512
# Points of a cell of equal scores: 4, and 64 times its share of the weight.
FEW_POINTS, SHARED_POINTS = 4, 64


@dataclass(frozen=True)
class _Curve:
    """Cumulated gaps at points of the sorted samples.

    Attributes
    ----------
    cell : int64 (n_points,), the cell of each point; a cell has several if several samples are in it
    weight : float64 (n_points,), each cell's divided by its points
    quantile, gap : float64 (n_points,), share of the weight up to the point, 0 at the first, and the sum of gaps up to it
    """

    cell: Ints
    weight: Floats
    quantile: Floats
    gap: Floats

    @classmethod
    def of(cls, cells: Cells, residual: Floats) -> _Curve:
        """Return the curve of cells and their sums of correct minus scores, (n_cells,)."""
        total = cells.weight.sum()
        wanted = FEW_POINTS + np.ceil(SHARED_POINTS * cells.weight / total)
        points = np.clip(np.minimum(cells.predictions, wanted), 1, None).astype(np.int64)
        cell = np.repeat(np.arange(len(cells)), points)
        weight = (cells.weight / points)[cell]
        mass = np.cumsum(weight)
        span = mass[-1] - mass[0]
        quantile = (mass - mass[0]) / span if span > 0.0 else np.zeros(len(mass))
        return cls(cell, weight, quantile, np.cumsum((residual / points)[cell]) / total)


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit the points of a polygon, at most `MAX_POINTS`, of equal weight between them.

    `error_bound` is of the mean change over predictions: the polygon against the correction of every cell, and the effect of the
    order of correct ratings within cells.

    Parameters
    ----------
    cells : Cells, non-empty, sorted
    options : `knots`, `shrunk`

    Returns
    -------
    FitResult
    """
    reason = why_no_fit(cells)
    if reason is not None:
        return FitResult(None, reason)
    score = own_scores(cells)
    if len(cells) < 2 or not np.ptp(score) > 0.0:
        return FitResult(None, "constant_scores")
    residual = cells.correct - cells.weight * score
    curve = _Curve.of(cells, residual)
    values, slopes = _bases(curve.quantile, options.knots)
    total = cells.weight.sum()
    root = np.sqrt(curve.weight / total)[:, None]
    solution = np.linalg.pinv(root * values) * root.T
    slope = _by_cell(curve, slopes, len(cells))
    correction = slope @ (solution @ curve.gap)
    factor = 1.0
    if options.shrunk:
        factor = _factor(cells, score, residual, correction, slope, solution, curve)
    mapped = np.clip(score + factor * correction, 0.0, 1.0)
    corners = _corners(cells.weight, score)
    x, y = score[corners], mapped[corners]
    moved = float(cells.weight @ np.abs(np.interp(score, x, y) - mapped) / total)
    details = {
        "n_parameters": options.knots,
        "n_points": len(corners),
        "shrinkage": factor,
        "error_bound": moved + factor * _order_effect(cells, slope, solution, curve),
    }
    warnings = ["shrunk_to_identity"] if factor == 0.0 else []
    if ((y <= 0.0) & (x > 0.0)).any() or ((y >= 1.0) & (x < 1.0)).any():
        warnings.append("certain_values")
    if (np.diff(y) < 0.0).any():
        warnings.append("not_monotone")
    return FitResult({"x": x.tolist(), "y": y.tolist()}, None, details, warnings)


def solve_view(view: View, options: Options) -> FitResult:
    """Fit as `solve`, if there are 20 units per knot, and 20 of each outcome.

    Units of an outcome are the units in proportion to its share of the weight.

    Raises
    ------
    NoResultError
        The window contains plain histograms, or the class is not stored.
    """
    cells = view.cells()
    cells = cells.select(cells.weight > 0.0)
    reason = why_no_fit(cells)
    if reason is not None:
        return FitResult(None, reason)
    n_units = int(view.counts["n_units"])
    share = float(cells.correct.sum() / cells.weight.sum())
    rarer = max(min(share, 1.0 - share), 1e-300)
    needed = max(
        UNITS_A_PARAMETER * options.knots, int(np.ceil(MIN_CLASS_UNITS / rarer * (1 - 1e-12)))
    )
    if n_units < needed:
        details = {
            "n_parameters": options.knots,
            "n_units_fitted": n_units,
            "n_units_needed": needed,
        }
        return FitResult(None, "few_rows", details)
    return solve(cells, options)


def _bases(quantile: Floats, knots: int) -> tuple[Floats, Floats]:
    """Return values and slopes of the natural splines that are 1 at one knot and 0 at the others, (n_points, knots) each."""
    spline = scipy.interpolate.CubicSpline(
        np.linspace(0.0, 1.0, knots), np.eye(knots), bc_type="natural"
    )
    return np.asarray(spline(quantile)), np.asarray(spline(quantile, 1))


def _by_cell(curve: _Curve, rows: Floats, n_cells: int) -> Floats:
    """Return means over the points of each cell, (n_cells, n_columns)."""
    starts = np.flatnonzero(np.diff(curve.cell, prepend=-1))
    counts = np.bincount(curve.cell, minlength=n_cells)
    return np.asarray(np.add.reduceat(rows, starts, axis=0) / counts[:, None])


def _factor(
    cells: Cells,
    score: Floats,
    residual: Floats,
    correction: Floats,
    slope: Floats,
    solution: Floats,
    curve: _Curve,
) -> float:
    """Return the factor of the correction with the least unbiased estimate of the mean squared error, in [0, 1].

    The expected product of noise and correction is subtracted: a cell's noise has at least the variance of independent labels.
    """
    size = float(cells.weight @ correction**2)
    if not size > 0.0:
        return 0.0
    variance = np.maximum(cells.null_variance, cells.weight * np.maximum(score * (1 - score), 0.0))
    # A unit gap of a point raises the curve from there on.
    later = np.cumsum(solution[:, ::-1], axis=1)[:, ::-1].T / cells.weight.sum()
    raised = _by_cell(curve, later, len(cells))
    expected = float(np.einsum("c,cp,cp->", variance, slope, raised))
    return min(max((float(residual @ correction) - expected) / size, 0.0), 1.0)


def _order_effect(cells: Cells, slope: Floats, solution: Floats, curve: _Curve) -> float:
    """Bound the mean change of the correction by the order of correct and incorrect ratings within cells."""
    up, down = cells.largest_shift
    reach = np.maximum(up, down) / cells.weight.sum()
    knots = np.abs(solution) @ reach[curve.cell]
    return float(cells.weight @ (np.abs(slope) @ knots) / cells.weight.sum())


def _corners(weight: Floats, score: Floats) -> Ints:
    """Return places of at most `MAX_POINTS` cells: the first, the last, and others at equal steps of the cumulated weight."""
    rising = np.flatnonzero(np.diff(score, prepend=-1.0) > 0.0)
    if len(rising) <= MAX_POINTS:
        return rising
    mass = np.cumsum(weight[rising])
    steps = np.linspace(0.0, mass[-1], MAX_POINTS - 1)
    last = len(rising) - 1
    found = np.minimum(np.searchsorted(mass, steps[:-1], "right"), last)
    return np.asarray(rising[np.unique([0, *found.tolist(), last])])


MAPS = (
    MapMethod(
        slug="spline",
        title="Spline calibration (KS spline)",
        source="Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (ICLR 2021)",
        input="probability",
        objective="squares of cumulated gaps",
        scopes=ONE_SCORE,
        solve=solve,
        at=polygon_at,
        options=("knots", "shrunk"),
        solve_view=solve_view,
    ),
)
