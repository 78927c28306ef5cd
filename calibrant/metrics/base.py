"""Interface of a metric: its name, what it reads, how it is computed.

Most metrics are one of three: a statistic of the bins' gaps, the mean of such a statistic over classes, or a ratio of stored sums.
Each gives value, interval and null reference from one formula. The others define `estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.options import TIES, Option
from calibrant.core.view import NotAnswerable, Table, View
from calibrant.inference.intervals import GapStatistic, gap_interval, ratio_interval, resampled_gaps
from calibrant.inference.null_reference import gap_null, sum_null
from calibrant.inference.replication import ReplicateTables, class_tables, score_columns, tables_for
from calibrant.inference.seeds import SEED
from calibrant.metrics.estimate import Estimate as Estimate

Floats = NDArray[np.float64]
INTERVAL_METHOD = "bootstrap of 64 unit replicates, inverted along the observed gaps"


@dataclass(frozen=True)
class Metric:
    """A named number computed from a view.

    Attributes
    ----------
    slug, title, unit, source : text
    range : lowest and highest value, None where unbounded
    direction : "lower", "higher" or "zero" is better
    needs : names of the accumulators that it reads, in addition to `counts` and `histograms`; "scope" is a scope's own table
    options : names of the query's own fields that it reads in addition to raters
    own_options : declared options that only some metrics have
    formula : in one line
    exact : whether the stored state gives the value of the raw rows; otherwise an estimate from cells or a sample
    search_words : names of the metric in papers and elsewhere, each with the parameters that it implies
    """

    slug: str
    title: str
    unit: str
    range: tuple[float | None, float | None]
    direction: str
    needs: tuple[str, ...]
    source: str
    options: tuple[str, ...] = ()
    own_options: tuple[Option, ...] = ()
    formula: str = ""
    exact: bool = True
    search_words: Mapping[str, str] = field(default_factory=dict, hash=False)

    def value(self, view: View) -> float | None:
        """Return the number alone, without interval and null reference; None where there is no data.

        Raises
        ------
        NotAnswerable
            The state cannot give the number.
        """
        return self.estimate(view, SEED).value

    def estimate(self, view: View, seed: int) -> Estimate:
        """Return the number with its interval and null reference.

        Raises
        ------
        NotAnswerable
            The state cannot give the number.
        """
        raise NotImplementedError(f"{self.slug} computes its estimate")


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A metric computed by a plain function of the view and the seed.

    `ratio(view)` gives numerator and denominator by replicate, float64 (64,) each, where the metric is a mean over
    predictions.
    """

    compute: Callable[[View, int], Estimate] = field(default=lambda view, seed: Estimate(None))
    ratio: Callable[[View], tuple[Floats, Floats]] | None = None

    def estimate(self, view: View, seed: int) -> Estimate:
        return self.compute(view, seed)


def _no_bias(table: Table) -> float:
    return 0.0


@dataclass(frozen=True)
class GapMetric(Metric):
    """A statistic of weight and gap by bin of the requested scope.

    `statistic(bias)` makes the statistic. `bias(table)` is a constant of the data that is subtracted; 0 for most metrics.
    """

    own_options: tuple[Option, ...] = (TIES,)
    statistic: Callable[[float], GapStatistic] = field(
        default=lambda bias: lambda weight, gap: gap.sum(axis=(-1, -2))
    )
    bias: Callable[[Table], float] = field(default=_no_bias)
    binning: str | None = None
    scope: str | None = None

    @property
    def takes_bias(self) -> bool:
        """Whether it is more than a statistic of weights and gaps."""
        return self.bias is not _no_bias

    def asked(self, view: View) -> GapMetric:
        """Return the metric under the query's own options; the metric itself if it reads none."""
        return self

    def value(self, view: View) -> float | None:
        table = view.binned(
            self.scope or view.scope, self.binning or view.question.binning, view.question.bins
        )
        cells = table.cells
        if not cells.weight.sum():
            return None
        return float(self.statistic(self.bias(table))(cells.weight[None], cells.gap[None]))

    def estimate(self, view: View, seed: int) -> Estimate:
        scope = self.scope or view.scope
        table = view.binned(scope, self.binning or view.question.binning, view.question.bins)
        cells = table.cells
        total = float(cells.weight.sum())
        if not total:
            return Estimate(None, "no_data")
        statistic = self.statistic(self.bias(table))
        weight, gap = cells.weight[None], cells.gap[None]
        extra: dict[str, Any] = {
            "bins": view.question.bins,
            "scope": scope,
        } | view.histogram_counts(scope)
        if table.discarded_weight:
            extra["discarded_weight"] = table.discarded_weight
        interval, about = _gap_interval(
            view,
            scope,
            (statistic, self.statistic(0.0)),
            seed,
            lambda: tables_for(view, scope, view.question.bins),
        )
        null = gap_null(statistic, weight, cells.null_variance[None], seed)
        value = float(statistic(weight, gap))
        return Estimate(value, interval=interval, null=null, extra=extra | about)


@dataclass(frozen=True)
class ClasswiseGapMetric(Metric):
    """The mean over classes of a statistic of one class against the rest."""

    own_options: tuple[Option, ...] = (TIES,)
    statistic: GapStatistic = field(default=lambda weight, gap: gap.sum(axis=-1))
    binning: str | None = None

    def value(self, view: View) -> float | None:
        tables = self._tables(view)
        if not sum(float(table.cells.weight.sum()) for table in tables):
            return None
        width = max(table.n_bins for table in tables)
        weight, gap = _stacked(tables, "weight", width), _stacked(tables, "gap", width)
        return float(self.statistic(weight, gap).mean())

    def _tables(self, view: View) -> list[Table]:
        binning = self.binning or view.question.binning
        return [
            view.binned(f"class:{k}", binning, view.question.bins)
            for k in range(view.spec.n_classes)
        ]

    def estimate(self, view: View, seed: int) -> Estimate:
        tables = self._tables(view)
        if not sum(float(table.cells.weight.sum()) for table in tables):
            return Estimate(None, "no_data")
        width = max(table.n_bins for table in tables)
        weight, gap, variance = (
            _stacked(tables, name, width) for name in ("weight", "gap", "null_variance")
        )
        by_class = self.statistic(weight, gap)
        whole = mean_over_classes(self.statistic)
        interval, about = _gap_interval(
            view, "classes", (whole, whole), seed, lambda: class_tables(view, view.question.bins)
        )
        extra = {"bins": view.question.bins, "by_class": by_class.tolist()}
        null = gap_null(whole, weight, variance, seed)
        return Estimate(float(by_class.mean()), interval=interval, null=null, extra=extra | about)


@dataclass(frozen=True)
class SumMetric(Metric):
    """A ratio of two stored sums of the policy."""

    column: str = ""
    weight: str = "weight"
    null_column: str | None = None

    def estimate(self, view: View, seed: int) -> Estimate:
        sums = view.scores()
        if not sums["weight"]:
            return Estimate(None, "no_data")
        value = sums[self.column] / sums[self.weight] if sums[self.weight] else None
        interval, about = ratio_bounds(view, self.column, self.weight)
        null = None
        if self.null_column is not None:
            null = sum_null(
                sums[self.null_column], sums[self.null_column + "_variance"], sums["weight"]
            )
        return Estimate(value, interval=interval, null=null, extra=about)


def ratio_bounds(
    view: View, column: str, weight: str
) -> tuple[tuple[float, float] | None, dict[str, Any]]:
    """Return the interval of a ratio of score sums and how it was made, or why there is none."""
    try:
        columns = score_columns(view)
        if not np.all(columns[weight].sum() - columns[weight] > 0):
            raise NotAnswerable("too_few_units", "one replicate holds all the weight")
        return ratio_interval(columns[column], columns[weight], view.question.ci), {
            "interval_method": "jackknife of 64 unit replicates"
        }
    except NotAnswerable as refusal:
        return None, {"interval_reason": refusal.reason}


def _gap_interval(
    view: View,
    key: str,
    statistics: tuple[GapStatistic, GapStatistic],
    seed: int,
    tables: Callable[[], ReplicateTables],
) -> tuple[tuple[float, float] | None, dict[str, Any]]:
    try:
        gaps = view.once((key, seed), lambda: resampled_gaps(tables(), seed))
        bounds = gap_interval(*statistics, gaps, view.question.ci)
        return bounds, {"interval_method": INTERVAL_METHOD, "interval_bins": gaps.bins}
    except NotAnswerable as refusal:
        return None, {"interval_reason": refusal.reason}


def _stacked(tables: list[Table], name: str, width: int) -> Floats:
    """Return a column of every table, (n_tables, width), with zeros behind shorter ones."""
    result = np.zeros((len(tables), width))
    for row, table in zip(result, tables, strict=True):
        row[: table.n_bins] = getattr(table.cells, name)
    return result


def mean_over_classes(statistic: GapStatistic) -> GapStatistic:
    """Return the statistic of each class's table, averaged."""
    return lambda weight, gap: statistic(weight, gap).mean(axis=-1)


def share(weight: Floats) -> Floats:
    """Return weights divided by their total over bins, 0 where there is none."""
    total = weight.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(weight, total, out=np.zeros_like(weight), where=total > 0))
