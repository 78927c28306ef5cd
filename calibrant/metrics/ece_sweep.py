"""ECE-sweep: the gap over the largest number of equal-mass bins up to which accuracy never decreases with confidence.

Bins are tried from 1 upwards, and the last number before the first failure is used. Numbers up to `MAX_BINS` are tried, because a
sample without a miss stays monotone for any number. `at_bound` reports that. Equal scores stay together; `ties=split` divides them by rank as
the paper does, in the caller's order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.core.arrays import Floats, Ints, share
from calibrant.core.cells import Cells, cuts_inside
from calibrant.core.query import NORM, TIES
from calibrant.core.view import NoResultError, View
from calibrant.estimators.cut_error import cut_error, power_mean_gap
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import NullReference, gap_null
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue, OfBins, scored_cells

MAX_BINS = 2000
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Sweep:
    """Result of a sweep: first cell of every bin, the number of bins tried, and whether it was the last allowed."""

    starts: Ints
    bins: int
    at_bound: bool


def sweep(weight: Floats, correct: Floats, split: bool) -> Sweep:
    """Find the finest equal-mass bins before accuracy first decreases.

    Parameters
    ----------
    weight, correct : float64 (n_cells,), in order of score
    split : whether cells are rows that are divided by rank; else they are divided by mass

    Source
    ------
    Roelofs, Cain, Shlens, Mozer, Mitigating bias in calibration error estimation (AISTATS 2022), algorithm 1.

    Examples
    --------
    >>> sweep(np.ones(4), np.array([0.0, 1.0, 0.0, 1.0]), split=True).bins
    2
    """
    before = np.concatenate([[0.0], np.cumsum(weight)])
    running_correct = np.concatenate([[0.0], np.cumsum(correct)])
    most = min(len(weight), MAX_BINS)
    best = np.zeros(1, np.int64)
    for bins in range(2, most + 1):
        starts = _rank_starts(len(weight), bins) if split else _mass_starts(before, bins)
        ends = np.append(starts[1:], len(weight))
        rate = (running_correct[ends] - running_correct[starts]) / (before[ends] - before[starts])
        if (np.diff(rate) < -_ROUNDING).any():
            return Sweep(best, bins - 1, False)
        best = starts
    return Sweep(best, max(most, 1), most == MAX_BINS)


def _mass_starts(before: Floats, bins: int) -> Ints:
    """Return first cells of bins of equal mass: those whose running weight reaches j / bins of the total."""
    reached = before[-1] * np.arange(1, bins) / bins * (1.0 - _ROUNDING)
    starts = np.unique(np.searchsorted(before[:-1], reached))
    return np.concatenate([[0], starts[(starts > 0) & (starts < len(before) - 1)]])


def _rank_starts(n: int, bins: int) -> Ints:
    """Return first rows of bins whose sizes differ by at most one, larger first."""
    small, larger = divmod(n, bins)
    j = np.arange(bins)
    return j * small + np.minimum(j, larger)


def sweep_error(cells: Cells, starts: Ints, norm: int) -> tuple[float, Cells]:
    """Return the mean gap (1) or the root mean square gap (2) of the bins that begin at `starts`, and the bins."""
    group = np.zeros(len(cells), np.int64)
    group[starts[1:]] = 1
    bins = cells.grouped(np.cumsum(group), len(starts))
    return gap_norm(bins.weight, bins.gap, norm), bins


def gap_norm(weight: Floats, gap: Floats, norm: int) -> float:
    """Return the weighted mean of gaps to a power, and the root of that power."""
    return float((weight @ np.abs(gap) ** norm / weight.sum()) ** (1.0 / norm))


def read(view: View) -> MetricValue | None:
    split = TIES.of(view.pane_query) == "split"
    if split and not view.is_raw:
        raise NoResultError("needs_rows", "only ties of raw rows can be split")
    cells = view.row_cells(view.scope) if split else scored_cells(view)
    cells = cells.select(cells.weight > 0)
    view.reject_histograms()
    if not len(cells):
        return None
    norm = NORM.of(view.pane_query)
    ended = sweep(cells.weight, cells.correct, split)
    value = sweep_error(cells, ended.starts, norm)[0]
    extra = {
        "bins_chosen": ended.bins,
        "at_bound": ended.at_bound,
        "norm": norm,
        "ties": TIES.of(view.pane_query),
    }
    if not view.is_raw:
        extra["error_bound"] = error_bound(cells, ended.bins, norm, value)
        extra["error_estimate"] = cut_error(cells, ended.bins, value, power_mean_gap(float(norm)))
        extra["error_bound_of"] = "bins_chosen"
    return MetricValue(value, extra)


def error_bound(cells: Cells, bins: int, norm: int, value: float) -> float:
    """Bound the change at this number of bins when cuts may be anywhere inside their cells."""
    cuts = np.minimum(cuts_inside(cells, bins), 2)
    total = float(cells.weight.sum())
    shift = float(cuts @ np.maximum(*cells.largest_shift)) / total
    if norm == 1:
        return 2.0 * shift
    # A bin's weight times its squared gap has slopes of at most 2 in the difference and 1 in the weight.
    square = 2.0 * (2.0 * shift + float(cuts @ cells.weight) / total)
    return float(min(np.sqrt(square), square / value if value else np.inf))


def of_bins(view: View, reading: MetricValue) -> OfBins:
    """Return the gaps of equal-width bins, as many as the sweep chose."""
    norm = int(str(reading.extra["norm"]))

    def statistic(bins: int) -> GapStatistic:
        return lambda weight, gap: (
            (share(weight) * np.abs(gap) ** norm).sum(axis=(-1, -2)) ** (1.0 / norm)
        )

    return OfBins(statistic, int(str(reading.extra["bins_chosen"])))


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the null reference at the number of bins that the data chose."""
    split = reading.extra["ties"] == "split"
    cells = view.row_cells(view.scope) if split else scored_cells(view)
    cells = cells.select(cells.weight > 0)
    norm = reading.extra["norm"]
    bins = sweep_error(cells, sweep(cells.weight, cells.correct, split).starts, norm)[1]

    def statistic(weight: Floats, gap: Floats) -> Floats:
        mean = (weight * np.abs(gap) ** norm).sum(axis=-1) / weight.sum(axis=-1)
        return np.asarray(mean ** (1.0 / norm))

    return gap_null(statistic, bins.weight, bins.null_variance, seed)


METRIC = FormulaMetric(
    slug="ece_sweep",
    title="ECE-sweep",
    formula="ece with the largest number of equal-mass bins whose accuracies are monotone",
    search_words={"ECE_SWEEP": "", "monotonic sweep calibration error": ""},
    source="Roelofs, Cain, Shlens, Mozer (AISTATS 2022), equal mass",
    options=("scope",),
    own_options=(NORM, TIES),
    read=read,
    of_bins=of_bins,
    null=null,
)
