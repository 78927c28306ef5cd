"""Maps that are constant in bins of the score: histogram binning and scaling-binning.

Histogram binning gives every score the share of correct ratings in its bin, scaling-binning the mean of a Platt curve there, whose
calibration can be measured: the same data serve curve and bins, and its bins have equal mass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.calibrators.cell_fits import why_no_fit
from calibrant.calibrators.logistic_maps import PLATT
from calibrant.calibrators.map_method import ONE_SCORE, FitResult, MapMethod, Options
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells, Table, equal_mass_groups
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import View

FEW = 10


def solve_shares(cells: Cells, options: Options) -> FitResult:
    """Fit edges and values; an empty bin gets its midpoint, which changes its scores as little as possible."""
    if why_no_fit(cells) == "no_labels":
        return FitResult(None, "no_labels")
    return _shares(*bin_cells(cells, options))


def solve_view(view: View, options: Options) -> FitResult:
    """Fit as `solve_shares`; equal-width bins may come from plain histograms too.

    Raises
    ------
    CalibrationInputError
        The model's grid cannot give so many bins exactly.
    NoResultError
        The window contains histograms that cannot represent these bins.
    """
    if options.binning == "equal_width":
        table = width_table(view, options)
        if not table.cells.weight.sum() > 0.0:
            return FitResult(None, "no_labels")
        return _shares(table.cells, table.edges)
    return solve_shares(view.cells().select(view.cells().weight > 0), options)


def solve_means(cells: Cells, options: Options) -> FitResult:
    """Fit edges on the score and the mean of the Platt curve in each bin.

    `error_bound` is of the mean over predictions: Platt's, plus the effect of cutting bins at cell limits.
    """
    curve = PLATT.solve(cells, options)
    if curve.parameters is None:
        return curve
    if curve.parameters["slope"] < 0.0:
        return FitResult(None, "decreasing", curve.details)
    grouped, edges = bin_cells(cells, replace(options, binning="equal_mass"))
    scaled = PLATT.at(curve.parameters, cells.mean)
    bins = bin_of(edges, 0.5 * (cells.lower + cells.upper))
    mean = np.bincount(bins, cells.weight * scaled, len(grouped)) / grouped.weight
    parameters = {"edges": edges.tolist(), "values": mean.tolist(), **curve.parameters}
    moved = 0.0
    if (cells.lower < cells.upper).any():
        moved = 2.0 * float(cells.weight.max() / cells.weight.sum() * np.ptp(mean))
    details = {"n_bins": len(mean), "error_bound": curve.details["error_bound"] + moved}
    return FitResult(parameters, None, curve.details | details, curve.warnings)


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return the value of the score's bin (a, b], 0 in the first."""
    values = np.asarray(parameters["values"], np.float64)
    return np.asarray(values[bin_of(np.asarray(parameters["edges"], np.float64), score)])


def width_table(view: View, options: Options) -> Table:
    """Return the fit's equal-width bins, whatever bins the view's query has."""
    pane_query = view.pane_query.without_edges(bins=options.bins)
    return view.with_query(pane_query).table()


def bin_cells(cells: Cells, options: Options) -> tuple[Cells, Floats]:
    """Return cells, non-empty and sorted, summed by bin, and the edges (n_bins + 1,) that assign a score to the bin of the fit.

    Of equal-width bins empty ones are included.
    """
    if options.binning == "equal_width":
        group = equal_width_bin(0.5 * (cells.lower + cells.upper), options.bins)
        return cells.grouped(group, options.bins), np.arange(options.bins + 1) / options.bins
    group = equal_mass_groups(cells.weight, options.bins)
    grouped = cells.grouped(group, int(group[-1]) + 1)
    last = np.flatnonzero(np.diff(group))
    cut = cells.upper[last].copy()
    shared = cells.lower[last + 1] == cut
    point = cells.lower[last + 1] == cells.upper[last + 1]
    cut[shared & point] = np.nextafter(cut[shared & point], 0.0)
    return grouped, np.concatenate([[0.0], cut, [1.0]])


def bin_of(edges: Floats, score: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the first bin whose upper edge is not below the score."""
    return np.clip(np.searchsorted(edges[1:], score, "left"), 0, len(edges) - 2)


def _shares(bins: Cells, edges: Floats) -> FitResult:
    filled = bins.weight > 0.0
    values = np.where(filled, np.clip(bins.rate, 0.0, 1.0), 0.5 * (edges[:-1] + edges[1:]))
    warnings = [warning for warning in (why_no_fit(bins),) if warning]
    if (bins.count[filled] < FEW).any():
        warnings.append("few_in_some_bins")
    if not filled.all():
        warnings.append("empty_bins")
    details = {"n_bins": len(values), "n_empty_bins": int((~filled).sum()), "error_bound": 0.0}
    return FitResult({"edges": edges.tolist(), "values": values.tolist()}, None, details, warnings)


MAPS = (
    MapMethod(
        slug="histogram",
        title="Histogram binning",
        source="Zadrozny, Elkan (ICML 2001)",
        input="probability",
        objective="brier",
        scopes=ONE_SCORE,
        solve=solve_shares,
        at=at,
        options=("bins", "binning"),
        solve_view=solve_view,
    ),
    MapMethod(
        slug="scaling_binning",
        title="Scaling-binning",
        source="Kumar, Liang, Ma (NeurIPS 2019)",
        input="probability",
        objective="nll",
        scopes=ONE_SCORE,
        solve=solve_means,
        at=at,
        options=("bins",),
    ),
)
