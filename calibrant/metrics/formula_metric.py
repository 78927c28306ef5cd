"""Base of metrics that have a formula of their own: value, then interval and null reference where they exist.

A formula returns a `MetricValue`. A metric defines how to compute an interval and the value of a calibrated model, or names the
reason why it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.documents import Extra, Result
from calibrant.core.view import NoResultError, View
from calibrant.estimators.placement_error import placement_error
from calibrant.inference.bin_noise import kish
from calibrant.inference.gap_uncertainty import fine_gaps, has_named_units, worst_case
from calibrant.inference.intervals import (
    INTERVAL_METHOD,
    MAY_BE_ABOVE,
    GapStatistic,
    gap_interval,
)
from calibrant.inference.mean_interval import MIN_ERRORS, effective_outcomes, few_errors
from calibrant.inference.null_reference import NullReference
from calibrant.metrics.metric import Estimate, Metric

# Measured: with scores in fewer bins, replicates' bins show too little of the variation; intervals contain the truth in .79 to .9 of runs.
_MIN_BINS = 8.0
_SAMPLES_PER_UNIT = 4.0


@dataclass(frozen=True)
class MetricValue:
    """A value with its inputs, JSON-able."""

    value: float
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Interval:
    """Bounds and how they were made."""

    bounds: tuple[float, float]
    about: Mapping[str, Any]


@dataclass(frozen=True)
class OfBins:
    """The metric on equal-width bins alone.

    Attributes
    ----------
    statistic : for a number of bins
    bins : preferred number
    min_effective : effective samples from which on the interval contains the true value as often as promised
    """

    statistic: Callable[[int], GapStatistic]
    bins: int = SCORE_BINS
    min_effective: float = 0.0


def _unread(view: View) -> MetricValue | None:
    return None


@dataclass(frozen=True)
class FormulaMetric(Metric):
    """A metric with a formula of its own.

    Attributes
    ----------
    read : the value from a view, None where there is no data
    of_bins : the value from bins, which gives an interval and a stability curve from replicates
    of_cells : values from a view and cells in the place of its own, for the typical error of stored cells: one for each row of correct
        ratings of these cells, float64 (n_rows, n_cells), to float64 (n_rows,)
    of_resamples : values of resamples of the raw rows of a view, exact and all at once: how often each row is taken,
        float64 (n_resamples, n_rows), to float64 (n_resamples,); nan where one has no value
    interval : from view, value, seed, instead of `of_bins`; without either, `no_interval` is the reason
    null : the reference of a calibrated model, from view, value, seed; without it, `no_null` is the reason
    null_of_units : whether the reference is also right where units were named; otherwise it is the worst case there
    null_assumption : what a reference assumes, where that is not what those of gaps assume
    """

    exact: bool = False
    read: Callable[[View], MetricValue | None] = _unread
    of_bins: Callable[[View, MetricValue], OfBins] | None = None
    of_cells: Callable[[View, Cells, Floats], Floats] | None = None
    of_resamples: Callable[[View, Floats], Floats] | None = None
    interval: Callable[[View, MetricValue, int], Interval] | None = None
    no_interval: str = "estimator_not_replicated"
    null: Callable[[View, MetricValue, int], NullReference] | None = None
    no_null: str = "not_simulated"
    null_of_units: bool = False
    null_assumption: Callable[[NullReference], str] | None = None

    def value(self, view: View) -> float | None:
        reading = self.read(view)
        return None if reading is None else reading.value

    def estimate(self, view: View, seed: int) -> Estimate:
        reading = self.read(view)
        if reading is None:
            return Estimate(None, "no_data")
        extra: Extra = {"scope": view.scope} if "scope" in self.options else {}
        extra |= reading.extra
        of_cells = self.of_cells
        if of_cells is not None and "error_bound" in extra:
            extra["error_estimate"] = placement_error(scored_cells(view), partial(of_cells, view))
        bounds: tuple[float, float] | None
        of_interval: Mapping[str, Any]
        try:
            found = self._interval(view, reading, seed)
            bounds, of_interval = found.bounds, found.about
        except NoResultError as rejection:
            bounds, of_interval = None, {"interval_reason": rejection.reason}
        null, of_null = self._null(view, reading, seed)
        if bounds is not None and self.of_bins and _exceeds(bounds, reading.value, null, of_null):
            # The bins of the interval lose what the value measures, as with scores that crowd near 0 or 1.
            bounds, of_interval = None, {"interval_reason": "bins_too_coarse"}
        extra |= {**of_interval, **of_null}
        if bounds is not None and null is not None and null.limit is not None and self.of_bins:
            # What chance alone explains does not exclude a calibrated model, whose error is 0.
            bounds = (0.0 if reading.value <= null.limit else bounds[0], bounds[1])
        return Estimate(reading.value, interval=bounds, null=null, extra=extra)

    def _null(
        self, view: View, reading: MetricValue, seed: int
    ) -> tuple[NullReference | None, Extra]:
        """Return the null reference, or why there is none."""
        if self.null is None:
            return None, {"null_reason": self.no_null}
        try:
            null = self.null(view, reading, seed)
        except NoResultError as rejection:
            return None, {"null_reason": rejection.reason}
        about = (
            {} if self.null_assumption is None else {"null_assumption": self.null_assumption(null)}
        )
        if has_named_units(view) and not self.null_of_units:
            return None, about | worst_case(null) | {"null_reason": "units_not_replicated"}
        return null, about

    def _interval(self, view: View, reading: MetricValue, seed: int) -> Interval:
        if self.interval is not None:
            return self.interval(view, reading, seed)
        if self.of_bins is None:
            raise NoResultError(self.no_interval, "")
        return interval_of_bins(view, self.of_bins(view, reading), seed)


def _exceeds(
    bounds: tuple[float, float], value: float, null: NullReference | None, about: Result
) -> bool:
    """Return whether a value is above the interval of its bins by more than chance adds to it."""
    worst = about.get("null_worst_case")
    chance = null.mean if null is not None else worst["mean"] if worst else None
    return chance is not None and value - chance > bounds[1]


def each_division(
    of_cells: Callable[[View, Cells], float],
) -> Callable[[View, Cells, Floats], Floats]:
    """Return `FormulaMetric.of_cells` from the value of one row of correct ratings."""

    def of_rows(view: View, cells: Cells, correct: Floats) -> Floats:
        return np.array([of_cells(view, replace(cells, correct=each)) for each in correct])

    return of_rows


def bounded(bound: float | None, why: str) -> Result:
    """Return the error bound of an estimate from cells, or the reason where there is none or no finite one."""
    if bound is not None and np.isfinite(bound):
        return {"error_bound": bound}
    return {"error_bound": None, "error_bound_reason": why}


def outcomes_of(view: View, sums: Floats, scope: str | None = None) -> Floats:
    """Return the effective number of replicates with outcomes of each kind, (n_replicates, n_kinds) to (n_kinds,).

    Sums from `bin_scores` are none up to a third of a sample's weight: the mean score of a bin stands for that of its replicate.
    """
    cells = scored_cells(view, scope)
    return effective_outcomes(sums, float(cells.weight.sum()) / (3.0 * float(cells.count.sum())))


def reject_few_outcomes(
    view: View, outcomes: Floats, weight: Floats, scope: str | None = None
) -> None:
    """Raise if a few replicates hold all outcomes of one kind.

    Parameters
    ----------
    view : View
    outcomes, weight : float64 (n_replicates, n_bins), from `bin_scores`
    scope : Default: the requested one.

    Raises
    ------
    NoResultError
        Fewer than about five independent outcomes of one kind.
    """
    total = outcomes.sum(axis=1)
    both = np.stack([total, weight.sum(axis=1) - total], axis=1)
    if outcomes_of(view, both, scope).min() < MIN_ERRORS:
        raise few_errors()


def reject_narrow(weight: Floats) -> None:
    """Raise if almost all scores are in few bins, whose mean scores then do not stand for theirs.

    Parameters
    ----------
    weight : float64 (n_replicates, n_bins)

    Raises
    ------
    NoResultError
        Fewer than 8 effective bins.
    """
    if kish(weight.sum(axis=0)) < _MIN_BINS:
        raise NoResultError("narrow_scores", "almost all scores are in fewer than 8 of 60 bins")


def scored_cells(view: View, scope: str | None = None) -> Cells:
    """Return the cells of a scope (default: the requested one) that have weight, one per distinct score where raw rows are available.

    Raises
    ------
    NoResultError
        The window holds plain histograms, or the classes' cells are not stored.
    """
    view.reject_histograms()
    scope = scope or view.scope
    return view.once(("scored", scope), lambda: view.cells_of(scope).together())


def interval_of_bins(view: View, of_bins: OfBins, seed: int) -> Interval:
    """Return the interval of a statistic of gaps from the replicates' tables of the requested scope.

    Replicates give the available number of bins nearest to the requested one.

    Raises
    ------
    NoResultError
        As `replication.tables_for`, or too few effective samples for this metric.
    """
    key = ("resampled", view.scope, seed, of_bins.bins)
    gaps, n_effective = view.once(key, lambda: fine_gaps(view, of_bins.bins, seed))
    # The estimate of the effective samples varies where units are few, and would choose the lucky windows.
    if (
        n_effective < of_bins.min_effective
        or view.counts["n_units"] < of_bins.min_effective / _SAMPLES_PER_UNIT
    ):
        detail = f"{n_effective:.0f} effective samples of {view.counts['n_units']} units; an interval needs {of_bins.min_effective:.0f}"
        raise NoResultError("too_few_units", detail)
    made = of_bins.statistic(gaps.bins)
    about = {
        "interval_method": INTERVAL_METHOD,
        "interval_of": f"the population's value of this metric on {gaps.bins} equal-width bins; {MAY_BE_ABOVE}",
        "interval_bins": gaps.bins,
        "n_effective": n_effective,
    }
    found = gap_interval(made, made, gaps, view.pane_query.ci)
    observed = float(made(gaps.total, gaps.gap))
    return Interval(found.bounds, about | found.correction(observed))


def bin_scores(view: View, bins: int, scope: str | None = None) -> Floats:
    """Return the mean score of each of `bins` equal-width bins of a scope (default: the requested one), middles of empty ones; float64 (bins,)."""
    cells = view.cells_of(scope or view.scope)
    middle = (np.arange(bins) + 0.5) / bins
    place = np.minimum(np.floor((cells.lower + cells.upper) / 2.0 * bins), bins - 1).astype(
        np.int64
    )
    weight = np.bincount(place, cells.weight, bins)
    total = np.bincount(place, cells.confidence, bins)
    return np.divide(total, weight, out=middle, where=weight > 0)
