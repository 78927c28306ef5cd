"""Comparison of two reliability tables bin by bin: how much further from the diagonal one side is than the other.

The interval of a bin's gap is that of its accuracy (Wilson's) minus the mean confidence. The intervals of both sides are combined with the
correlation of each replicate's contributions to either gap.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.documents import Result, Row
from calibrant.core.view import NoResultError, View
from calibrant.inference.pairing import (
    BY_REPLICATES,
    INDEPENDENT,
    RESAMPLED,
    difference_interval_of_two,
    ratio_difference,
    replicate_correlation,
)
from calibrant.inference.reliability_table import reliability
from calibrant.inference.replication import ReplicateTables, tables_for
from calibrant.inference.seeds import SEED


def reliability_difference(view: View, other: View, seed: int = SEED) -> Result:
    """Return the table of `view`, each bin with the other side's gap and the difference of the two.

    Parameters
    ----------
    view, other : with the same query, of equal-width bins
    seed : of the resamples

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
    return (
        mine | {"table": rows, "table_method": method} | _overall(view, other, mine, theirs, seed)
    )


def _row_difference(row: Row, twin: Row, correlation: float) -> Result:
    result: Result = {
        "against": {
            name: twin[name]
            for name in ("weight", "mean_confidence", "accuracy", "gap", "interval")
        },
        "difference": None,
        "difference_interval": None,
    }
    if row["gap"] is None or twin["gap"] is None:
        return result
    intervals = tuple(
        [bound - each["mean_confidence"] for bound in each["interval"]] for each in (row, twin)
    )
    result["difference"] = row["gap"] - twin["gap"]
    result["difference_interval"] = difference_interval_of_two(
        (row["gap"], twin["gap"]), (intervals[0], intervals[1]), correlation
    )
    return result


def _overall(view: View, other: View, mine: Result, theirs: Result, seed: int) -> Result:
    """Return accuracy minus mean confidence of either side, and the difference."""
    gaps = [
        each["accuracy"] - each["mean_confidence"] if each["mean_confidence"] is not None else None
        for each in (mine, theirs)
    ]
    result: Result = {
        "gap": gaps[0], "against_gap": gaps[1], "difference": None, "difference_interval": None,
    }  # fmt: skip
    if gaps[0] is None or gaps[1] is None:
        return result | {
            "difference_reason": mine.get("reason") or theirs.get("reason") or "no_data"
        }
    result["difference"] = gaps[0] - gaps[1]
    try:
        sums = [_all_replicates(tables_for(each, each.scope, 1)) for each in (view, other)]
    except NoResultError as rejection:
        return result | {"difference_reason": rejection.reason}
    ratios = [(gap.sum(axis=1), weight.sum(axis=1)) for weight, gap in sums]
    bounds = ratio_difference(ratios[0], ratios[1], view.pane_query.ci)
    return result | {"difference_interval": bounds, "difference_method": RESAMPLED}


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
    errors = [_errors(*_all_replicates(each)) for each in tables]
    return replicate_correlation(errors[0], errors[1]), BY_REPLICATES


def _all_replicates(tables: ReplicateTables) -> tuple[Floats, Floats]:
    """Return weight and gap sums of all tables together, float64 (64, bins), zero in empty replicates."""
    complete = np.zeros((2, N_REPLICATES, tables.bins))
    complete[:, tables.places] = tables.weight.sum(axis=1), tables.difference.sum(axis=1)
    return complete[0], complete[1]


def _errors(weight: Floats, difference: Floats) -> Floats:
    """Return each replicate's contribution to the gap of each bin, of mean 0."""
    total = weight.sum(axis=0)
    gap = ratio(difference.sum(axis=0), total)
    return np.asarray(difference - gap * weight)
