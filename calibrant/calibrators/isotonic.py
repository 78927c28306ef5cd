"""Isotonic regression: the increasing curve of lowest squared error, as a polygon through its pooled blocks."""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.calibrators.cell_fits import polygon_at, why_no_fit
from calibrant.calibrators.map_method import ONE_SCORE, FitResult, MapMethod, Options
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit the points of an increasing polygon: first and last score of each block, or with `centred` its mean score alone.

    A cell represents its scores by their mean. `error_bound` is of the mean over predictions of the distance to the
    fit on raw rows: a row's assumed error is twice the rise of the curve over its cell and the two neighbouring cells.

    Parameters
    ----------
    cells : Cells, non-empty, sorted
    options : `centred`

    Returns
    -------
    FitResult; a single point if all scores are equal or all ratings agree.
    """
    if why_no_fit(cells) == "no_labels":
        return FitResult(None, "no_labels")
    fit = scipy.optimize.isotonic_regression(cells.rate, weights=cells.weight)
    value, starts = np.clip(fit.x, 0.0, 1.0), fit.blocks
    block = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    score = cells.mean
    if options.centred:
        weight = np.bincount(block, cells.weight)
        x, y = np.bincount(block, cells.confidence) / weight, value[starts[:-1]]
    else:
        ends = np.unique(np.concatenate([starts[:-1], starts[1:] - 1]))
        x, y = score[ends], value[ends]
    warnings = [warning for warning in (why_no_fit(cells),) if warning]
    if len(x) > 1 and (y[0] <= 0.0 or y[-1] >= 1.0):
        warnings.append("certain_values")
    details = {"n_blocks": len(starts) - 1, "error_bound": _error_bound(cells, value)}
    return FitResult({"x": x.tolist(), "y": y.tolist()}, None, details, warnings)


def _error_bound(cells: Cells, value: Floats) -> float:
    if (cells.lower == cells.upper).all():
        return 0.0
    wide = cells.upper > cells.lower
    above = np.append(value[1:], 1.0 if wide[-1] else value[-1])
    below = np.append(0.0 if wide[0] else value[0], value[:-1])
    return 2.0 * float(cells.weight @ (above - below) / cells.weight.sum())


MAPS = (
    MapMethod(
        slug="isotonic",
        title="Isotonic regression",
        source="Zadrozny, Elkan (KDD 2002); centred: Oron, Flournoy (2017)",
        input="probability",
        objective="brier",
        scopes=ONE_SCORE,
        solve=solve,
        at=polygon_at,
        options=("centred",),
    ),
)
