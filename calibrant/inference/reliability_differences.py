"""Comparison of two reliability tables bin by bin: how much further from the diagonal one side is than the other.

The interval of a bin's gap is that of its accuracy (Wilson's) minus the mean confidence. The intervals of both sides are combined with the
correlation of each replicate's contributions to either gap.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.documents import Result, Row
from calibrant.core.view import NoResultError, View
from calibrant.inference.pairing import (
    BY_REPLICATES,
    INDEPENDENT,
    difference_interval_of_two,
    difference_of,
    ratio_difference,
    replicate_correlation,
)
from calibrant.inference.reliability_table import reliability
from calibrant.inference.replication import tables_for


def reliability_difference(view: View, other: View) -> Result:
    """Return the table of `view`, each bin with the other side's gap and the difference of the two.

    Parameters
    ----------
    view, other : with the same query, of equal-width bins

    Returns
    -------
    dict as of `reliability`. Each bin has `against` (weight, mean confidence, accuracy, gap of the other side), `difference` of the gaps
    and its `difference_interval`; bins that are empty on a side have None. `gap` and `against_gap` are those of all bins together, accuracy
    minus mean confidence, with `difference`, `difference_interval`, `difference_method`, and `difference_reason` where there is no interval.
    """
    mine, theirs = reliability(view), reliability(other)
    correlation, method = _correlation(view, other)
    rows = [
        row | _row_difference(row, twin, correlation[row["bin"]])
        for row, twin in zip(mine["table"], theirs["table"], strict=True)
    ] if mine["table"] and theirs["table"] else mine["table"]  # fmt: skip
    return mine | {"table": rows, "table_method": method} | _overall(view, other, mine, theirs)


def _row_difference(row: Row, twin: Row, correlation: float) -> Result:
    names = ("weight", "mean_confidence", "accuracy", "gap", "interval")
    found = difference_of(row["gap"], twin["gap"], lambda: _row_interval(row, twin, correlation))
    shown = {name: found[name] for name in ("difference", "difference_interval")}
    return {"against": {name: twin[name] for name in names}} | shown


def _row_interval(row: Row, twin: Row, correlation: float) -> tuple[list[float], str]:
    one, two = (
        [bound - each["mean_confidence"] for bound in each["interval"]] for each in (row, twin)
    )
    gaps = (row["gap"], twin["gap"])
    return difference_interval_of_two(gaps, (one, two), correlation), BY_REPLICATES


def _overall(view: View, other: View, mine: Result, theirs: Result) -> Result:
    """Return accuracy minus mean confidence of either side, and the difference."""
    gaps = [
        each["accuracy"] - each["mean_confidence"] if each["mean_confidence"] is not None else None
        for each in (mine, theirs)
    ]
    reason = mine.get("reason") or theirs.get("reason") or "no_data"
    return {"gap": gaps[0], "against_gap": gaps[1]} | difference_of(
        gaps[0], gaps[1], lambda: _overall_interval(view, other), reason
    )


def _overall_interval(view: View, other: View) -> tuple[list[float], str]:
    sums = [tables_for(each, each.scope, 1).complete for each in (view, other)]
    mine, theirs = ((gap.sum(axis=(1, 2)), weight.sum(axis=(1, 2))) for weight, gap in sums)
    return ratio_difference(mine, theirs, view.pane_query.ci)


def _correlation(view: View, other: View) -> tuple[Floats, str]:
    """Return the correlation of both sides' gaps by bin, float64 (bins,), and its method; 0 where replicates have other bins."""
    bins = view.pane_query.bins
    apart = np.zeros(bins), INDEPENDENT
    if view.pane_query.bin_edges:
        return apart
    try:
        tables = [tables_for(each, each.scope, bins) for each in (view, other)]
    except NoResultError:
        return apart
    if any(each.bins != bins for each in tables):
        return apart
    every = (each.together for each in tables)
    mine, theirs = (each.contributions(each.gap)[:, 0] for each in every)
    return replicate_correlation(mine, theirs), BY_REPLICATES
