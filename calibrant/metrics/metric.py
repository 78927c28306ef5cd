"""Interface of a metric: its name, what it reads, how it is computed.

Most metrics are one of three: a statistic of the bins' gaps, the mean of such a statistic over classes, or a ratio of stored sums.
Each gives value, interval and null reference from one formula. For the others, `FunctionMetric` takes a function, or a subclass
defines `estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calibrant.core.arrays import Floats, share
from calibrant.core.cells import Table
from calibrant.core.documents import Extra
from calibrant.core.query import TIES, Option
from calibrant.core.view import View
from calibrant.inference.closed_null import ClosedNull, null_of_sum
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.gap_tables import GapForm, GapTables, gap_tables
from calibrant.inference.gap_uncertainty import gap_uncertainty, has_named_units
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.mean_interval import effective_size, mean_interval
from calibrant.inference.null_reference import NullReference, count_null, sum_null
from calibrant.inference.replication import score_columns
from calibrant.inference.seeds import SEED
from calibrant.inference.sum_null import sum_null_of_units
from calibrant.metrics.estimate import Estimate as Estimate

BETTER = {
    "lower": "smaller is better",
    "higher": "larger is better",
    "zero": "nearer 0 is better",
    "one": "nearer 1 is better",
}


@dataclass(frozen=True)
class Metric:
    """A named number computed from a view.

    Attributes
    ----------
    slug, title, unit, source : text
    range : lowest and highest value, None where unbounded
    direction : which values are better, a key of `BETTER`
    needs : names of the accumulators that it reads, in addition to `counts` and `histograms`; "scope" is a scope's own table
    options : names of the query's own fields that it reads in addition to raters
    own_options : declared options that only some metrics have
    formula : in one line
    exact : whether the stored state gives the value of the raw rows; otherwise an estimate from cells or a sample
    search_words : names of the metric in papers and elsewhere, each with the parameters that it implies
    lowest_truth : lowest possible true value, where unbiased estimates may be lower; intervals are cut off there
    """

    slug: str
    title: str
    unit: str = "probability"
    range: tuple[float | None, float | None] = (0.0, 1.0)
    direction: str = "lower"
    needs: tuple[str, ...] = ("scope",)
    source: str = ""
    options: tuple[str, ...] = ()
    own_options: tuple[Option, ...] = ()
    formula: str = ""
    exact: bool = True
    search_words: Mapping[str, str] = field(default_factory=dict, hash=False)
    lowest_truth: float | None = None

    def value(self, view: View) -> float | None:
        """Return the number alone, without interval and null reference; None where there is no data.

        Raises
        ------
        NoResultError
            The state cannot give the number.
        """
        return self.estimate(view, SEED).value

    def estimate(self, view: View, seed: int) -> Estimate:
        """Return the number with its interval and null reference.

        Raises
        ------
        NoResultError
            The state cannot give the number.
        """
        raise NotImplementedError(f"{type(self).__name__} must compute its estimate")


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A metric computed by a plain function of the view and the seed.

    `ratio(view)` gives numerator and denominator by replicate, float64 (64,) each, where the metric is a mean over
    predictions. `of_resamples(view, times)` gives the values of many resamples of a view's raw rows, float64 (n_resamples, n_rows) to
    float64 (n_resamples,), nan where one has no value.
    """

    compute: Callable[[View, int], Estimate] = field(default=lambda view, seed: Estimate(None))
    ratio: Callable[[View], tuple[Floats, Floats]] | None = None
    of_resamples: Callable[[View, Floats], Floats] | None = None

    def estimate(self, view: View, seed: int) -> Estimate:
        return self.compute(view, seed)


@dataclass(frozen=True)
class GapMetric(Metric):
    """A statistic of weight and gap by bin of the requested scope.

    `gaps` is the statistic. `bias(table)` is a constant of the data that is subtracted from its sum, None for most metrics.
    `by_bin`: each bin counts alike, however little it holds; the interval is then limited to bins with enough units.
    `closed` is the null reference in closed form; that of a `GapSum` follows from it, and without either the reference is drawn.
    """

    options: tuple[str, ...] = ("bins", "binning", "edges", "min_count", "scope")
    own_options: tuple[Option, ...] = (TIES,)
    gaps: GapStatistic = field(default=GapSum(share))
    bias: Callable[[Table], float] | None = None
    binning: str | None = None
    scope: str | None = None
    by_bin: bool = False
    closed: ClosedNull | None = None

    @property
    def takes_bias(self) -> bool:
        """Whether it is more than a statistic of weights and gaps."""
        return self.bias is not None

    def statistic(self, bias: float) -> GapStatistic:
        """Return the statistic less a bias."""
        return self.gaps.less(bias) if bias and isinstance(self.gaps, GapSum) else self.gaps

    def closed_null(self, bias: float) -> ClosedNull | None:
        """Return the null reference of the statistic less a bias in closed form; None if it is drawn."""
        return null_of_sum(self.gaps, bias) if isinstance(self.gaps, GapSum) else self.closed

    def requested(self, view: View) -> GapMetric:
        """Return the metric under the query's own options; the metric itself if it reads none."""
        return self

    def value(self, view: View) -> float | None:
        table = view.binned(
            self.scope or view.scope, self.binning or view.pane_query.binning, view.pane_query.bins
        )
        cells = table.cells
        if not cells.weight.sum():
            return None
        return float(self.statistic(self._bias(table))(cells.weight[None], cells.gap[None]))

    def tables(self, view: View) -> tuple[Table, GapTables]:
        """Return the bins of the value, and the same with what interval and null reference need."""
        scope, bins = self.scope or view.scope, view.pane_query.bins
        binning = self.binning or view.pane_query.binning
        table = view.binned(scope, binning, bins)
        key = ("gap tables", scope, binning, bins)
        return table, view.once(key, lambda: gap_tables((scope,), binning, bins, [table]))

    def form(self, view: View) -> GapForm:
        """Return the statistic with the bins of the value, under the query's own options."""
        table, tables = self.tables(view)
        bias = self._bias(table)
        closed = self.closed_null(bias)
        return GapForm(tables, self.statistic(bias), self.statistic(0.0), self.by_bin, closed)

    def _bias(self, table: Table) -> float:
        return 0.0 if self.bias is None else self.bias(table)

    def estimate(self, view: View, seed: int) -> Estimate:
        scope = self.scope or view.scope
        table, tables = self.tables(view)
        if not tables.weight.sum():
            return Estimate(None, "no_data")
        extra: Extra = (
            _about_bins(view, self.binning) | {"scope": scope} | view.histogram_counts(scope)
        )
        if table.discarded_weight:
            extra["discarded_weight"] = table.discarded_weight
        form = self.form(view)
        interval, null, about = gap_uncertainty(view, form, seed)
        return Estimate(form.observed, interval=interval, null=null, extra=extra | about)


@dataclass(frozen=True)
class ClasswiseGapMetric(Metric):
    """The mean over classes of a statistic of one class against the rest.

    `mean` is the mean as one statistic of all classes' gaps.
    """

    options: tuple[str, ...] = ("bins", "binning", "edges", "min_count")
    own_options: tuple[Option, ...] = (TIES,)
    statistic: GapStatistic = field(default=lambda weight, gap: gap.sum(axis=-1))
    mean: GapSum = field(default=GapSum(share))
    binning: str | None = None

    @property
    def closed_null(self) -> ClosedNull:
        """Null reference of the mean in closed form."""
        return null_of_sum(self.mean)

    def value(self, view: View) -> float | None:
        tables = self.tables(view)
        if not tables.weight.sum():
            return None
        return float(self.statistic(tables.weight, tables.gap).mean())

    def tables(self, view: View) -> GapTables:
        """Return the bins of every class."""
        binning, bins = self.binning or view.pane_query.binning, view.pane_query.bins
        scopes = tuple(f"class:{k}" for k in range(view.spec.n_classes))
        return gap_tables(scopes, binning, bins, view.binned_classes(binning, bins))

    def form(self, view: View) -> GapForm:
        """Return the mean over classes as one statistic, with the bins of every class."""
        return GapForm(self.tables(view), self.mean, self.mean, closed=self.closed_null)

    def estimate(self, view: View, seed: int) -> Estimate:
        form = self.form(view)
        tables = form.tables
        if not tables.weight.sum():
            return Estimate(None, "no_data")
        by_class = self.statistic(tables.weight, tables.gap)
        interval, null, about = gap_uncertainty(view, form, seed)
        extra = _about_bins(view, self.binning) | {"by_class": by_class.tolist()}
        return Estimate(float(by_class.mean()), interval=interval, null=null, extra=extra | about)


# A mean reads its sums; its interval also reads the cells of the model's own score, for the effective number of samples.
MEAN_NEEDS = ("scores", "own_score")


@dataclass(frozen=True)
class SumMetric(Metric):
    """A ratio of two stored sums of the policy; `of_counts`: a share of predictions, whose reference is that of a count."""

    column: str = ""
    weight: str = "weight"
    null_column: str | None = None
    of_counts: bool = False

    def estimate(self, view: View, seed: int) -> Estimate:
        sums = view.scores()
        if not sums["weight"]:
            return Estimate(None, "no_data")
        value = sums[self.column] / sums[self.weight] if sums[self.weight] else None
        interval, about = mean_interval(view, self.columns, self.column, self.weight, self.range)
        if self.null_column is None:
            return Estimate(value, interval=interval, extra=about)
        null = self._null(view, sums)
        if has_named_units(view):
            of_units, found = sum_null_of_units(view, self.column, self.null_column, null)
            return Estimate(value, interval=interval, null=of_units, extra=about | found)
        return Estimate(value, interval=interval, null=null, extra=about)

    def columns(self, view: View) -> dict[str, Floats]:
        """Return the score sums of each filled replicate, as `replication.score_columns`.

        Raises
        ------
        NoResultError
            As `score_columns`.
        """
        return score_columns(view)

    def _null(self, view: View, sums: Mapping[str, float]) -> NullReference:
        assert self.null_column is not None
        moments = (sums[self.null_column], sums[self.null_column + "_variance"], sums["weight"])
        return count_null(*moments, effective_size(view)) if self.of_counts else sum_null(*moments)


def _about_bins(view: View, binning: str | None) -> Extra:
    """Return the bins of a metric: a binning of its own has the number, not the edges."""
    return {"bins": view.pane_query.bins} if binning else view.pane_query.about_bins


def mean_over_classes(statistic: GapStatistic) -> GapStatistic:
    """Return the statistic of each class's table, averaged."""
    return lambda weight, gap: statistic(weight, gap).mean(axis=-1)
