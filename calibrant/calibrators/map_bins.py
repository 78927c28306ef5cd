"""Bins of histogram binning and scaling-binning: cells summed by bin, and edges that assign a score to the bin of the fit."""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.base import Floats, Options
from calibrant.core.cells import Cells, equal_mass_groups
from calibrant.core.grid import equal_width_bin


def bin_cells(cells: Cells, options: Options, score: Floats | None = None) -> tuple[Cells, Floats]:
    """Return cells summed by bin, and the bins' edges.

    Parameters
    ----------
    cells : Cells, non-empty, sorted
    options : `bins`, `binning`
    score : float64 (n_cells,), on which equal-width bins are cut. Default: the cells' own score.

    Returns
    -------
    bins : Cells, empty ones included for equal-width bins
    edges : float64 (n_bins + 1,); a score belongs to the first bin whose upper edge is not below it
    """
    if options.binning == "equal_width":
        middle = 0.5 * (cells.lower + cells.upper) if score is None else score
        group = equal_width_bin(middle, options.bins)
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
