"""Losses of one class's probability against the rest, from cells: before a map, after it, and on held-out data.

Held-out numbers use two-fold cross-fitting over the 64 replicates: a map fitted to each half is applied to the other. Their
tables are coarse (60 bins of the score, 15 of a class's probability), so both numbers of a gain have that resolution.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.replicates import CLASS_BINS, SCORE_BINS, TABLE_SUMS, keeps_class_tables
from calibrant.calibrators.held_out import cells_of_sums, held_out_result
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.map_method import MapMethod, Options
from calibrant.calibrators.row_losses import ECE_BINS, ONE_CLASS, Losses, event_losses, mean_losses
from calibrant.core.arrays import Floats
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.cells import Cells
from calibrant.core.documents import Result
from calibrant.core.label_policies import POLICIES
from calibrant.core.view import View

MIN_REPLICATES = 20
HOW = {
    "bins": ECE_BINS,
    "edges": "right",
    "binning": "equal_width",
    "brier": ONE_CLASS,
    "scores": "cell means",
}


def losses(cells: Cells, score: Floats) -> Losses:
    """Return NLL, Brier and ECE of `score` (n_cells,) against the cells' correct ratings."""
    sums = event_losses(cells.correct, cells.weight, score)
    return mean_losses(sums, score, cells.correct, cells.weight)


def own_scores(cells: Cells) -> Floats:
    """Return the mean score of each cell, clipped to its bounds, which rounding could exceed."""
    mean = np.clip(cells.mean, cells.lower, cells.upper)
    inside = 0.5 * (cells.lower + cells.upper)
    on_edge = (cells.lower < cells.upper) & ((mean == cells.lower) | (mean == cells.upper))
    return np.asarray(np.where(on_edge, inside, mean))


def held_out(method: MapMethod, view: View, options: Options) -> tuple[Result | None, str | None]:
    """Return losses before and after on halves that did not take part in the fit, or the reason why there are none.

    Parameters
    ----------
    method : MapMethod
    view : View whose pane stores replicates
    options : as of the fit

    Returns
    -------
    result : dict or None. `gain` is before minus after, its interval from the variation across replicates (Student's t).
    reason : None, "not_kept", "few_units" or the reason of a half's fit
    """
    tables = _replicate_tables(view)
    if tables is None:
        return None, "not_kept"
    filled = tables[0].sum(axis=1) > 0.0
    if filled.sum() < MIN_REPLICATES:
        return None, "few_units"
    assert method.solve is not None
    half = np.arange(N_REPLICATES) % 2
    keep = tables[0] > 0.0
    before = np.divide(tables[1], tables[0], out=np.zeros_like(tables[1]), where=keep)
    after = np.zeros_like(before)
    for side in (0, 1):
        solved = method.solve(_cells(tables[:, half != side]), options)
        if solved.parameters is None:
            return None, solved.reason
        mine = before[half == side]
        after[half == side] = method.at_scores(solved.parameters, mine.ravel()).reshape(mine.shape)
    first, then = (np.stack([1.0 - s[keep], s[keep]], axis=1) for s in (before, after))
    result = held_out_result(_rows(tables), first, then, "positive", view.pane_query.ci)
    del result["n"], result["n_units"]  # of bins and replicates
    about = {
        "table_bins": tables.shape[2],
        "n_replicates": int(filled.sum()),
        "interval_method": "replicates, each mapped by the other half's fit",
    }
    return result | about, None


def _replicate_tables(view: View) -> Floats | None:
    """Return weight, confidence and correct of the scope, (3, replicates, bins); None if replicates do not store it."""
    kind, _, name = view.scope.partition(":")
    blocks = view.pane["replicates"].blocks
    if kind == "class" and keeps_class_tables(view.spec):
        sums = blocks["classes"].sums.reshape(len(TABLE_SUMS), N_REPLICATES, -1, CLASS_BINS)[
            :, :, int(name)
        ]
    elif kind == view.spec.default_scope:
        sums = blocks["tables"].sums.reshape(len(TABLE_SUMS), N_REPLICATES, SCORE_BINS)
    else:
        return None
    pooled = view.policy == 0
    correct = TABLE_SUMS.index(f"correct_{POLICIES[view.policy]}")
    return np.stack([sums[0 if pooled else 1], sums[2 if pooled else 3], sums[correct]])


def _cells(tables: Floats) -> Cells:
    """Return tables of several replicates summed as cells, non-empty ones only."""
    summed = tables.sum(axis=1)
    bins = summed.shape[1]
    edges = np.arange(bins + 1) / bins
    keep = summed[0] > 0.0
    return cells_of_sums(edges[:-1][keep], edges[1:][keep], *summed[:, keep])


def _rows(tables: Floats) -> LabelledRows:
    """Return every non-empty bin of every replicate as a row, whose unit is the replicate."""
    unit, place = np.nonzero(tables[0] > 0.0)
    weight, _, correct = tables[:, unit, place]
    share = np.stack([weight - correct, correct], axis=1)
    return LabelledRows(np.zeros_like(share), share, unit, unit % 2, place)
