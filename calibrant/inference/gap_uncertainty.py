"""Interval and null reference of a statistic of gaps over a value's own bins, from the state of a pane."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.documents import Extra, Result
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import POLICIES
from calibrant.core.view import NoResultError, Table, View
from calibrant.inference.bin_noise import BinMoments, DesignEffect, design_effect, noisy_gaps
from calibrant.inference.class_dependence import effective_classes, of_dependent_classes
from calibrant.inference.closed_null import ClosedNull
from calibrant.inference.intervals import (
    INTERVAL_METHOD,
    INTERVAL_OF,
    GapStatistic,
    ResampledGaps,
    gap_interval,
)
from calibrant.inference.largest_gap import largest_gap_null
from calibrant.inference.null_reference import (
    ASSUMPTION,
    NullReference,
    gap_null,
)
from calibrant.inference.replication import (
    BinShares,
    ReplicateTables,
    bin_shares,
    class_tables,
    reject_if_thin,
    tables_for,
)
from calibrant.inference.unit_null import (
    BY_UNITS,
    PROMISED_FROM,
    RETURNED_FROM,
    null_effect,
    unit_null,
)

MIN_EFFECTIVE = 50.0
MIN_EFFECTIVE_OF_UNITS = 120.0
MIN_BIN_UNITS = 5.0
_CLEARLY_DEPENDENT = 1.5
_ANY = 2
_MIN_EFFECT_OF_SHARES = 0.05
Floats = NDArray[np.float64]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class GapTables:
    """The bins of a value, one row per table (one table, or one per class), with how to find their replicates.

    Attributes
    ----------
    scopes : scope of each table
    binning, bins : as requested
    weight, gap, score, squared, variance, independent : float64 (n_tables, n_bins): weight, gap, mean score (0.5 where empty), sum of
        squared weights of samples, variance of outcomes under the null with dependent units, and with independent predictions
    """

    scopes: tuple[str, ...]
    binning: str
    bins: int
    weight: Floats
    gap: Floats
    score: Floats
    squared: Floats
    variance: Floats
    independent: Floats

    @cached_property
    def deviation(self) -> Floats:
        """Standard deviation of the gaps under the null, 0 where there is no weight; float64 (n_tables, n_bins)."""
        spread = np.sqrt(np.maximum(self.variance, 0.0))
        return np.divide(spread, self.weight, out=np.zeros_like(spread), where=self.weight > 0)

    @cached_property
    def moments(self) -> BinMoments:
        units = np.divide(
            self.weight**2, self.squared, out=np.zeros_like(self.weight), where=self.squared > 0
        )
        return BinMoments(self.weight, self.gap, self.score, units)


def gap_tables(scopes: tuple[str, ...], binning: str, bins: int, tables: list[Table]) -> GapTables:
    """Return the tables of one value, with zeros behind shorter ones."""
    width = max(table.n_bins for table in tables)

    def column(name: str) -> Floats:
        result = np.zeros((len(tables), width))
        for row, table in zip(result, tables, strict=True):
            row[: table.n_bins] = getattr(table.cells, name)
        return result

    weight, confidence, squared = (
        column(name) for name in ("weight", "confidence", "weight_squared")
    )
    filled = weight != 0
    score = np.divide(confidence, weight, out=np.full_like(weight, 0.5), where=filled)
    gap = np.divide(
        column("correct") - confidence, weight, out=np.zeros_like(weight), where=weight > 0
    )
    variance = column("null_variance")
    independent = np.maximum(squared * score * (1.0 - score), 0.0)
    return GapTables(scopes, binning, bins, weight, gap, score, squared, variance, independent)


def gap_uncertainty(
    view: View,
    tables: GapTables,
    statistics: tuple[GapStatistic, GapStatistic],
    seed: int,
    by_bin: bool = False,
    closed: ClosedNull | None = None,
) -> tuple[Bounds | None, NullReference | None, Extra]:
    """Return interval, null reference, and what they are from or why there are none.

    Parameters
    ----------
    view : View
    tables : the value's bins
    statistics : of the observed gaps, and the same of true gaps
    seed : of draws and resamples
    by_bin : whether each bin counts alike, so that the interval is limited to bins with enough units
    closed : null reference of the first statistic in closed form; drawn without it
    """
    null, about = _null(view, tables, statistics[0], seed, closed)
    try:
        bounds, found = _interval(view, tables, statistics, seed, by_bin)
    except NoResultError as rejection:
        return None, null, about | {"interval_reason": rejection.reason}
    observed = float(statistics[0](tables.weight, tables.gap))
    if null is not None and null.limit is not None and observed <= null.limit:
        # What chance alone explains does not exclude a calibrated model.
        bounds = (min(bounds[0], 0.0), bounds[1])
    return bounds, null, about | found


def has_named_units(view: View) -> bool:
    """Whether predictions share units."""
    return view.counts["n_units"] < view.counts["n_labelled"]


def worst_case(null: NullReference) -> Result:
    """Return the reference with fully dependent units under its own name."""
    return {"null_worst_case": {"mean": null.mean, "q95": null.q95, "assumption": ASSUMPTION}}


def fine_gaps(view: View, bins: int, seed: int) -> tuple[ResampledGaps, float]:
    """Return simulated gaps of the replicates' own bins of the view's scope, and the effective number of samples.

    Raises
    ------
    NoResultError
        As `replication.tables_for`, or too few effective samples.
    """
    replicates = tables_for(view, view.scope, bins)
    cells = view.cells_of(view.scope)
    grouped = cells.grouped(
        equal_width_bin((cells.lower + cells.upper) / 2.0, replicates.bins), replicates.bins
    )
    table = Table(grouped, np.arange(replicates.bins + 1) / replicates.bins, 0.0)
    moments = gap_tables((view.scope,), "equal_width", replicates.bins, [table]).moments
    effect = design_effect(replicates, moments, _least_effect(view))
    _reject_few(view, effect)
    return noisy_gaps(replicates, moments, effect, seed), effect.n


def class_gaps(view: View, bins: int, seed: int) -> ResampledGaps:
    """Return simulated gaps of equal-width bins of every class.

    Raises
    ------
    NoResultError
        As `replication.class_tables`, or too few effective samples.
    """
    scopes = tuple(f"class:{k}" for k in range(view.spec.n_classes))
    tables = gap_tables(scopes, "equal_width", bins, view.binned_classes("equal_width", bins))
    return _noisy(view, tables, seed)[0]


def design_effect_of(view: View) -> float:
    """Return the design effect of the view's own bins: the larger of within bins and over all of them.

    Raises
    ------
    NoResultError
        As `replication.tables_for`.
    """
    pane_query = view.pane_query
    tables = gap_tables((view.scope,), pane_query.binning, pane_query.bins, [view.table()])
    reject_if_thin(view)
    effect = _effect(view, tables)
    return max(effect.within, effect.total)


def replicates_of(view: View, tables: GapTables) -> tuple[ReplicateTables, BinShares]:
    """Return the replicates under the value's bins, however few are filled, and how the stored bins became those.

    Raises
    ------
    NoResultError
        As `replication.tables_for` and `class_tables`.
    """
    key = ("replicates", tables.scopes, tables.binning, tables.bins)
    return view.once(key, lambda: _replicates_of(view, tables))


def _replicates_of(view: View, tables: GapTables) -> tuple[ReplicateTables, BinShares]:
    if len(tables.scopes) > 1:
        fine = class_tables(view, SCORE_BINS, _ANY)
    else:
        fine = tables_for(view, tables.scopes[0], SCORE_BINS, _ANY)
    found = [view.cells_in_bins(scope, tables.binning, tables.bins) for scope in tables.scopes]
    shares = bin_shares(
        [cells for cells, _ in found],
        [bins for _, bins in found],
        fine.bins,
        tables.weight.shape[1],
    )
    return shares.of_tables(fine), shares


def _interval(
    view: View,
    tables: GapTables,
    statistics: tuple[GapStatistic, GapStatistic],
    seed: int,
    by_bin: bool,
) -> tuple[Bounds, Extra]:
    gaps, effect = _noisy(view, tables, seed)
    key = ("noisy", tables.scopes, tables.binning, tables.bins, seed)
    about: Extra = {
        "interval_method": INTERVAL_METHOD,
        "interval_of": INTERVAL_OF,
        "interval_bins": tables.weight.shape[1],
        "n_effective": effect.n,
    }
    if by_bin:
        gaps, left_out = view.once(("full", *key), lambda: _full_bins(gaps, tables, effect))
        about |= {"interval_min_units": MIN_BIN_UNITS, "interval_bins_left_out": left_out}
    return gap_interval(*statistics, gaps, view.pane_query.ci), about


def _noisy(view: View, tables: GapTables, seed: int) -> tuple[ResampledGaps, DesignEffect]:
    replicates, _ = replicates_of(view, tables)
    reject_if_thin(view)
    effect = _effect(view, tables)
    _reject_few(view, effect)
    key = ("noisy", tables.scopes, tables.binning, tables.bins, seed)
    return view.once(key, lambda: noisy_gaps(replicates, tables.moments, effect, seed)), effect


def _effect(view: View, tables: GapTables) -> DesignEffect:
    key = ("effect", tables.scopes, tables.binning, tables.bins)
    return view.once(
        key,
        lambda: design_effect(replicates_of(view, tables)[0], tables.moments, _least_effect(view)),
    )


def _least_effect(view: View) -> float:
    """Return the lower limit of the design effect: labels that are shares of several ratings vary less than one rating."""
    several = view.counts["n_ratings"] > view.counts["n_labelled"]
    return _MIN_EFFECT_OF_SHARES if POLICIES[view.policy] == "mean" and several else 1.0


def _reject_few(view: View, effect: DesignEffect) -> None:
    dependent = has_named_units(view) and max(effect.within, effect.total) > _CLEARLY_DEPENDENT
    least = MIN_EFFECTIVE_OF_UNITS if dependent else MIN_EFFECTIVE
    if effect.n < least:
        raise NoResultError(
            "too_few_units",
            f"the effective number of independent samples is {effect.n:.0f}; intervals need {least:.0f}",
        )


def _full_bins(
    gaps: ResampledGaps, tables: GapTables, effect: DesignEffect
) -> tuple[ResampledGaps, list[int]]:
    """Return the simulated gaps of bins with enough units, and the other bins with data.

    Raises
    ------
    NoResultError
        No bin has enough.
    """
    enough = tables.moments.units / max(effect.within, 1.0) >= MIN_BIN_UNITS
    if not enough.any():
        raise NoResultError("sparse_bins", f"no bin has {MIN_BIN_UNITS:.0f} independent samples")
    return gaps.within(enough), np.flatnonzero(((tables.weight > 0) & ~enough).any(axis=0)).tolist()


def _of_classes(view: View, tables: GapTables, null: NullReference) -> NullReference:
    if len(tables.scopes) > 1:
        return of_dependent_classes(null, effective_classes(tables.variance.sum(axis=1)))
    if tables.scopes[0] == "all":
        return of_dependent_classes(null, float(view.spec.n_classes))
    return null


def _null(
    view: View,
    tables: GapTables,
    statistic: GapStatistic,
    seed: int,
    closed: ClosedNull | None,
) -> tuple[NullReference | None, Extra]:
    ci = view.pane_query.ci
    if closed is None:
        worst = gap_null(statistic, tables.weight, tables.variance, seed, ci)
    else:
        worst = closed(tables.weight, tables.deviation, ci, tables.score, tables.moments.units)
    if closed is not largest_gap_null:
        worst = _of_classes(view, tables, worst)
    if not has_named_units(view):
        return worst, {"null_assumption": ASSUMPTION}
    about = worst_case(worst)
    try:
        replicates, shares = replicates_of(view, tables)
    except NoResultError as rejection:
        return None, about | {"null_reason": rejection.reason}
    n = len(replicates.weight)
    about["null_replicates"] = n
    if n < RETURNED_FROM:
        return None, about | {"null_reason": "too_few_units"}
    effect = null_effect(replicates.difference, tables.independent)
    missing = np.zeros_like(tables.weight)
    if not shares.nested:
        shown = (replicates.difference**2).sum(axis=0) * n / (n - 1.0)
        missing = np.maximum(effect * tables.independent - shown, 0.0)
    null = unit_null(
        statistic, tables.weight, replicates.difference, missing, seed, view.pane_query.ci
    )
    return null, about | {
        "null_assumption": BY_UNITS,
        "null_promised": n >= PROMISED_FROM,
        "design_effect": effect,
    }
