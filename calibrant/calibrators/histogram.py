"""Histogram binning: every score becomes the share of correct ratings in its bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.calibrators.base import ONE_SCORE, FitResult, Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import why_no_fit
from calibrant.calibrators.map_bins import bin_cells, bin_of
from calibrant.core.cells import Cells
from calibrant.core.view import Table, View

FEW = 10


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit edges and values; an empty bin gets its midpoint, which changes its scores as little as possible.

    Parameters
    ----------
    cells : Cells, non-empty
    options : `bins`, `binning`

    Returns
    -------
    FitResult
    """
    if why_no_fit(cells) == "no_labels":
        return FitResult(None, "no_labels")
    return _from_bins(*bin_cells(cells, options))


def solve_view(view: View, options: Options) -> FitResult:
    """Fit as `solve`; equal-width bins may come from plain histograms too.

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
        return _from_bins(table.cells, table.edges)
    return solve(view.cells().select(view.cells().weight > 0), options)


def width_table(view: View, options: Options) -> Table:
    """Return the fit's equal-width bins, whatever bins the view's query has."""
    pane_query = replace(view.pane_query, bins=options.bins, binning="equal_width")
    return view.with_query(pane_query).table()


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return the value of the score's bin (a, b], 0 in the first."""
    values = np.asarray(parameters["values"], np.float64)
    return np.asarray(values[bin_of(np.asarray(parameters["edges"], np.float64), score)])


def _from_bins(bins: Cells, edges: Floats) -> FitResult:
    filled = bins.weight > 0.0
    middle = 0.5 * (edges[:-1] + edges[1:])
    values = np.where(filled, np.clip(bins.rate, 0.0, 1.0), middle)
    warnings = []
    if why_no_fit(bins):
        warnings.append(str(why_no_fit(bins)))
    if (bins.count[filled] < FEW).any():
        warnings.append("few_in_some_bins")
    if not filled.all():
        warnings.append("empty_bins")
    details = {"n_bins": len(values), "n_empty_bins": int((~filled).sum()), "error_bound": 0.0}
    return FitResult({"edges": edges.tolist(), "values": values.tolist()}, None, details, warnings)


MAP = MapMethod(
    slug="histogram",
    title="Histogram binning",
    source="Zadrozny, Elkan (ICML 2001)",
    input="probability",
    objective="brier",
    scopes=ONE_SCORE,
    solve=solve,
    at=at,
    options=("bins", "binning"),
    solve_view=solve_view,
)
