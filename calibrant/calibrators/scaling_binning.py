"""Scaling-binning: a Platt curve, then its mean in bins of equal mass, whose calibration can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.calibrators import platt
from calibrant.calibrators.base import ONE_SCORE, FitResult, Floats, MapMethod, Options
from calibrant.calibrators.map_bins import bin_cells, bin_of
from calibrant.core.cells import Cells


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit edges on the score and the mean of the Platt curve in each bin; the same data serve curve and bins.

    `error_bound` is of the mean over predictions: Platt's, plus the effect of cutting bins at cell limits.

    Parameters
    ----------
    cells : Cells, non-empty
    options : `bins`; they have equal mass for any `binning`

    Returns
    -------
    FitResult
    """
    curve = platt.solve(cells, options)
    if curve.parameters is None:
        return curve
    if curve.parameters["slope"] < 0.0:
        return FitResult(None, "decreasing", curve.details)
    grouped, edges = bin_cells(cells, replace(options, binning="equal_mass"))
    scaled = platt.at(curve.parameters, cells.mean)
    bins = bin_of(edges, 0.5 * (cells.lower + cells.upper))
    mean = np.bincount(bins, cells.weight * scaled, len(grouped)) / grouped.weight
    parameters = {
        "edges": edges.tolist(),
        "values": mean.tolist(),
        "slope": curve.parameters["slope"],
        "intercept": curve.parameters["intercept"],
        "clip": curve.parameters["clip"],
    }
    moved = 0.0
    if (cells.lower < cells.upper).any():
        moved = 2.0 * float(cells.weight.max() / cells.weight.sum() * np.ptp(mean))
    details = {"n_bins": len(mean), "error_bound": curve.details["error_bound"] + moved}
    return FitResult(parameters, None, curve.details | details, curve.warnings)


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return the value of the score's bin (a, b], 0 in the first; slope and intercept document the origin of the values."""
    values = np.asarray(parameters["values"], np.float64)
    return np.asarray(values[bin_of(np.asarray(parameters["edges"], np.float64), score)])


MAP = MapMethod(
    slug="scaling_binning",
    title="Scaling-binning",
    source="Kumar, Liang, Ma (NeurIPS 2019)",
    input="probability",
    objective="nll",
    scopes=ONE_SCORE,
    solve=solve,
    at=at,
    options=("bins",),
)
