"""What stability curves are drawn of: stored replicates, cases, or rows.

A metric of equal-width bins is exact from replicates that store its bins. For other metrics, the binned form is used, which shows how
much they vary. The metric itself is also returned, and the stored sample gives exact curves of fewer predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.available_rows import available_batch
from calibrant.core.documents import Extra
from calibrant.core.errors import check_one_of
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.replication import ReplicateTables, class_tables, tables_for
from calibrant.metrics.case_metric import CaseMetric
from calibrant.metrics.formula_metric import FormulaMetric
from calibrant.metrics.metric import Metric
from calibrant.segmentation.case_bins import CaseBins
from calibrant.segmentation.case_errors import ERRORS, CaseErrors, case_errors
from calibrant.stability.row_curves import MAX_AT_ONCE, from_rows
from calibrant.stability.subsets import N_ORDERS, CurveSource, Draws, by_fraction

SOURCES = ("replicates", "sample")
# Of a sample: a few seconds.
MAX_SAMPLED = 500
_NOT_CARRIED = ("not_replicated", "classes_not_replicated", "scope_not_replicated")


def curves_of(view: View, metric: Metric, source: str | None = None) -> tuple[View, CurveSource]:
    """Return the view that subsets are drawn from, and how the metric's curves are computed on it.

    Parameters
    ----------
    source : of a stored state, one of `SOURCES`. Default: the replicates, or the sample where they do not carry the
        metric; errors over cases are of the cases, whatever its value

    Raises
    ------
    CalibrationInputError
        Another source.
    NoResultError
        Neither the state nor the rows support this metric on parts of the data.
    """
    if source is not None:
        check_one_of("source", source, SOURCES)
    if isinstance(metric, CaseMetric):
        return view, from_cases(view, metric)
    if view.is_raw:
        return view, from_rows(view, metric, {"source": "rows"})
    if source != "sample":
        try:
            return view, from_replicates(view, metric)
        except NoResultError as rejection:
            if source == "replicates" or rejection.reason not in _NOT_CARRIED:
                raise
    sampled, about = _sampled(view)
    return sampled, from_rows(sampled, metric, about)


def _sampled(view: View) -> tuple[View, Extra]:
    """Return the stored sample as raw rows; a uniform part of it if it is large."""
    copies = view.spec.n_classes if view.scope == "all" else 1
    batch, source = available_batch(view, max(min(MAX_SAMPLED, MAX_AT_ONCE // copies), 2))
    about = {"source": source, "n_sample": batch.n, "n_drawn_from": view.counts["n_labelled"]}
    return View(view.pane, view.pane_query, batch), about


@dataclass(frozen=True)
class ReplicateStatistic:
    """A metric as a statistic of the replicates' tables, and whether it is the metric itself."""

    statistic: GapStatistic
    tables: ReplicateTables
    is_exact: bool

    def of(self, times: Floats) -> Floats:
        """Return values of subsets, from how often each takes a replicate; (n_draws, n_replicates) to (n_draws,)."""
        weight, difference = self.tables.drawn(times)
        return np.asarray(self.statistic(weight, ratio(difference, weight)))


def from_replicates(view: View, metric: Metric) -> CurveSource:
    """Return how a metric's curves are computed from replicates.

    Raises
    ------
    NoResultError
        The metric has no form on equal-width bins, too few replicates are filled, or they do not store this scope.
    """
    found = _statistic_of(view, metric)
    n, bins = len(found.tables.weight), found.tables.bins
    about = {"source": "replicates", "n_drawn": n, "exact": found.is_exact, "bins": bins}
    if not found.is_exact:
        about["detail"] = (
            f"curves are of the replicates' {bins} bins (a, b]; `baselines` are of the metric itself"
        )
    curves = by_fraction(lambda v, draws, step: _statistic_of(v, metric).of(draws.times(step)))
    return CurveSource(curves, n, N_ORDERS, about)


def _statistic_of(view: View, metric: Metric) -> ReplicateStatistic:
    return view.once(("replicated", metric.slug), lambda: _make_statistic(view, metric))


def _make_statistic(view: View, metric: Metric) -> ReplicateStatistic:
    statistic, bins = metric.equal_bins(view.pane_query), view.pane_query.bins
    if statistic is not None:
        scope = metric.scope or view.scope
        tables = class_tables(view, bins) if metric.is_of_classes else tables_for(view, scope, bins)
        is_exact = tables.bins == bins and view.pane_query.edges == "right"
        return ReplicateStatistic(statistic, tables, is_exact)
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


def from_cases(view: View, metric: CaseMetric) -> CurveSource:
    """Return how the curves of an error are computed from the cases of a view, stored or raw.

    Subsets are of cases with their own table. Under micro averages, the bins of a subset's cases are pooled.

    Raises
    ------
    NoResultError
        Fewer than two cases with their own table, or as `case_errors`.

    Source
    ------
    Riera-Marin et al., table 2.
    """
    cases = _cases(view)
    n = len(cases.names)
    if n < 2:
        raise NoResultError("too_few_cases", "subsets are drawn of two cases or more")
    exact = not cases.bound(metric.error)
    about = {"source": "cases", "n_drawn": n, "n_cases": cases.n_cases["n"], "exact": exact}
    if not exact:
        about["detail"] = "plain histograms represent their scores by means of cells"
    curves = by_fraction(lambda v, draws, step: _of_cases(_cases(v), metric.error, draws, step))
    return CurveSource(curves, n, N_ORDERS, about)


def _cases(view: View) -> CaseErrors:
    return view.once("stability of cases", lambda: case_errors(view))


def _of_cases(cases: CaseErrors, error: str, draws: Draws, step: int) -> Floats:
    """Return the mean error of the drawn cases that have one, or the error of these cases pooled; (n_draws,)."""
    times = draws.times(step)
    if cases.options.average == "macro":
        errors = cases.by_case(error)
        known = np.isfinite(errors)
        return ratio(times @ np.where(known, errors, 0.0), times @ known.astype(np.float64), np.nan)
    by_class = ERRORS[error](_pooled(cases, times))
    known = np.isfinite(by_class)
    return ratio(np.where(known, by_class, 0.0).sum(axis=1), known.sum(axis=1), np.nan)


def _pooled(cases: CaseErrors, times: Floats) -> CaseBins:
    """Return the bins of drawn cases pooled, (n_draws, n counted classes, n_bins)."""
    bins, use = cases.counted, cases.use.astype(np.float64)

    def added(values: Floats) -> Floats:
        return np.asarray(np.tensordot(times, values, axes=1))

    tables = {
        name: added(getattr(bins, name) * use[:, :, None])
        for name in ("weight", "confidence", "correct")
    }
    totals = {
        name: added(getattr(bins, name) * use)
        for name in ("total", "positives", "predicted", "hit", "ranked")
    }
    if cases.options.average == "micro":
        # As the papers' code: the plain mean over cases of their own mean confidences.
        filled = use[:, :, None] * bins.filled
        means = np.where(filled > 0, bins.mean, 0.0)
        tables["confidence"] = ratio(added(means), added(filled)) * tables["weight"]
    return CaseBins(**tables, **totals, least=bins.least, gap_error=np.zeros_like(tables["weight"]))
