"""Stability curves from the stored replicates: a metric of the bins of each subset of replicates, summed.

A metric of equal-width bins is exact if the replicates store its bins. For other metrics, the binned form is used, which
shows how much they vary. The metric itself is also returned, and the stored sample gives exact curves of fewer predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.replication import ReplicateTables, class_tables, tables_for
from calibrant.metrics.formula_metric import FormulaMetric
from calibrant.metrics.metric import ClasswiseGapMetric, GapMetric, Metric, mean_over_classes
from calibrant.stability.subsets import FRACTIONS, CurveSource, Draws

N_ORDERS = 16


@dataclass(frozen=True)
class ReplicateStatistic:
    """A metric as a statistic of the replicates' tables, and whether it is the metric itself."""

    statistic: GapStatistic
    tables: ReplicateTables
    is_exact: bool


def replicate_curves(view: View, metric: Metric) -> CurveSource:
    """Return how a metric's curves are computed from replicates.

    Raises
    ------
    NoResultError
        The metric has no form on equal-width bins, too few replicates are filled, or they do not store this scope.
    """
    replicate_statistic = _statistic_of(view, metric)
    bins = replicate_statistic.tables.bins
    about = {
        "source": "replicates",
        "n_drawn": len(replicate_statistic.tables.weight),
        "exact": replicate_statistic.is_exact,
        "bins": bins,
    }
    if not replicate_statistic.is_exact:
        about["detail"] = (
            f"curves are of the replicates' {bins} bins (a, b]; `baselines` are of the metric itself"
        )
    return CurveSource(
        lambda v, draws: _curves(v, metric, draws),
        len(replicate_statistic.tables.weight),
        N_ORDERS,
        about,
    )


def is_binned(metric: Metric, pane_query: PaneQuery) -> bool:
    """Whether a metric with these options is a statistic of equal-width bins' weights and gaps alone."""
    if (
        pane_query.binning != "equal_width"
        or pane_query.min_count
        or not isinstance(metric, GapMetric | ClasswiseGapMetric)
    ):
        return False
    return metric.binning is None and not (isinstance(metric, GapMetric) and metric.takes_bias)


def binned_statistic(view: View, metric: Metric) -> GapStatistic | None:
    """Return the metric as that statistic, or None."""
    if not is_binned(metric, view.pane_query):
        return None
    if isinstance(metric, ClasswiseGapMetric):
        return mean_over_classes(metric.statistic)
    assert isinstance(metric, GapMetric)
    return metric.requested(view).statistic(0.0)


def scope_of(view: View, metric: Metric) -> str:
    """Return the scope whose scores a metric bins."""
    return (metric.scope if isinstance(metric, GapMetric) else None) or view.scope


def gaps(difference: Floats, weight: Floats) -> Floats:
    """Return mean differences, 0 without weight."""
    return ratio(difference, weight)


def _statistic_of(view: View, metric: Metric) -> ReplicateStatistic:
    return view.once(("replicated", metric.slug), lambda: _make_statistic(view, metric))


def _make_statistic(view: View, metric: Metric) -> ReplicateStatistic:
    statistic, bins = binned_statistic(view, metric), view.pane_query.bins
    if statistic is not None:
        by_class = isinstance(metric, ClasswiseGapMetric)
        tables = (
            class_tables(view, bins) if by_class else tables_for(view, scope_of(view, metric), bins)
        )
        return ReplicateStatistic(
            statistic, tables, tables.bins == bins and view.pane_query.edges == "right"
        )
    if not isinstance(metric, FormulaMetric) or metric.of_bins is None:
        raise NoResultError(
            "not_replicated", f"replicates keep equal-width bins, which do not carry {metric.slug}"
        )
    reading = metric.read(view)
    if reading is None:
        raise NoResultError("no_data", f"{metric.slug} has no value")
    of_bins = metric.of_bins(view, reading)
    tables = tables_for(view, view.scope, of_bins.bins)
    return ReplicateStatistic(of_bins.statistic(tables.bins), tables, False)


def _curves(view: View, metric: Metric, draws: Draws) -> Floats:
    """Return the statistic of the replicates drawn so far, (n_draws, 17)."""
    replicate_statistic = _statistic_of(view, metric)
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for step in range(len(FRACTIONS)):
        times = draws.times(step)
        weight, difference = (
            np.tensordot(times, values, axes=1)
            for values in (replicate_statistic.tables.weight, replicate_statistic.tables.difference)
        )
        found[:, step] = replicate_statistic.statistic(weight, gaps(difference, weight))
    return found
