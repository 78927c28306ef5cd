"""Interface of a metric: its name, what it reads, how it is computed.

Most metrics are one of two: a statistic of the bins' gaps, of one scope or as the mean over classes, or a ratio of stored sums. Each
gives value, interval, null reference and difference from one formula. For the others, `FunctionMetric` takes a function, or a subclass
defines `estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from calibrant.core.arrays import Floats, share
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.cells import Table
from calibrant.core.documents import Extra
from calibrant.core.query import TIES, Option, PaneQuery
from calibrant.core.view import View
from calibrant.inference.closed_null import ClosedNull, null_of_sum
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.gap_tables import GapForm, GapTables, gap_tables
from calibrant.inference.gap_uncertainty import gap_uncertainty, has_named_units
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.mean_interval import (
    effective_size,
    mean_interval,
    reject_few_errors,
    reject_uneven,
)
from calibrant.inference.null_reference import NullReference, count_null, sum_null
from calibrant.inference.pairing import Ratio
from calibrant.inference.replication import reject_if_thin, score_columns
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
    scope, binning : of its own, whatever the query has; None for the query's
    of_resamples : values of many resamples of a view's raw rows: how often each row is taken, float64 (n_resamples, n_rows), to
        float64 (n_resamples,); nan where one has no value
    max_resampled : rows up to which that takes less than one resample after the other: fewer if all pairs of rows are compared
    about : further results of a gap metric or a ratio, of view and value
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
    scope: str | None = None
    binning: str | None = None
    of_resamples: Callable[[View, Floats], Floats] | None = None
    max_resampled: int = 1500
    about: Callable[[View, float], Extra] | None = None

    @property
    def is_of_classes(self) -> bool:
        """Whether it is a mean over the classes' tables."""
        return False

    def equal_bins(self, pane_query: PaneQuery) -> GapStatistic | None:
        """Return the metric as a statistic of equal-width bins' weights and gaps alone; None if it is none under this query."""
        return None

    def form(self, view: View) -> GapForm | None:
        """Return the metric as a statistic of the gaps of a value's bins, with these; None if it is none."""
        return None

    def paired_sums(self, view: View) -> Ratio | None:
        """Return numerator and denominator of a mean by replicate, float64 (64,) each; None for other metrics.

        Raises
        ------
        NoResultError
            They do not show how much the mean varies.
        """
        return None

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

    def _further(self, view: View, value: float) -> Extra:
        return {} if self.about is None else self.about(view, value)


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A metric computed by a plain function of the view and the seed.

    `ratio(view)` gives numerator and denominator by replicate, float64 (64,) each, where the metric is a mean over predictions.
    """

    compute: Callable[[View, int], Estimate] = field(default=lambda view, seed: Estimate(None))
    ratio: Callable[[View], Ratio] | None = None

    def estimate(self, view: View, seed: int) -> Estimate:
        return self.compute(view, seed)

    def paired_sums(self, view: View) -> Ratio | None:
        if self.ratio is None:
            return None
        reject_if_thin(view)
        return self.ratio(view)


@dataclass(frozen=True)
class GapMetric(Metric):
    """A statistic of weight and gap by bin: of the requested scope, or of the tables of every class.

    Attributes
    ----------
    gaps : the statistic
    gaps_of : the same under the query's own options, with its null reference, instead of `gaps` and `closed`
    of_class : the statistic of one class's table, where `gaps` is its mean over classes
    bias : a constant of the data that is subtracted from the statistic's sum
    by_bin : whether each bin counts alike, however little it holds; the interval is then limited to bins with enough units
    closed : null reference in closed form; that of a `GapSum` follows from it, and without either the reference is drawn
    """

    options: tuple[str, ...] = ("bins", "binning", "edges", "min_count", "scope")
    own_options: tuple[Option, ...] = (TIES,)
    gaps: GapStatistic = field(default=GapSum(share))
    gaps_of: Callable[[PaneQuery], tuple[GapStatistic, ClosedNull | None]] | None = None
    of_class: GapStatistic | None = None
    bias: Callable[[Table], float] | None = None
    by_bin: bool = False
    closed: ClosedNull | None = None

    @property
    def is_of_classes(self) -> bool:
        return self.of_class is not None

    def equal_bins(self, pane_query: PaneQuery) -> GapStatistic | None:
        is_plain = pane_query.binning == "equal_width" and not pane_query.min_count
        if not is_plain or self.binning is not None or self.bias is not None:
            return None
        return self.statistic(pane_query)[0]

    def value(self, view: View) -> float | None:
        form = self.form(view)
        return form.observed if form.tables.weight.sum() else None

    def form(self, view: View) -> GapForm:
        found, tables = self._tables(view)
        bias = 0.0 if self.bias is None else self.bias(found[0])
        statistic, closed = self.statistic(view.pane_query, bias)
        return GapForm(tables, statistic, self.statistic(view.pane_query)[0], self.by_bin, closed)

    def estimate(self, view: View, seed: int) -> Estimate:
        form = self.form(view)
        tables, scope = form.tables, self.scope or view.scope
        if not tables.weight.sum():
            return Estimate(None, "no_data")
        extra: Extra = dict(self._about_bins(view))
        if self.of_class is not None:
            extra["by_class"] = self.of_class(tables.weight, tables.gap).tolist()
        else:
            discarded = self._tables(view)[0][0].discarded_weight
            extra |= {"scope": scope} | view.histogram_counts(scope)
            extra |= {"discarded_weight": discarded} if discarded else {}
        interval, null, found = gap_uncertainty(view, form, seed)
        extra |= found | self._further(view, form.observed)
        return Estimate(form.observed, interval=interval, null=null, extra=extra)

    def statistic(
        self, pane_query: PaneQuery, bias: float = 0.0
    ) -> tuple[GapStatistic, ClosedNull | None]:
        """Return the statistic under a query less a bias, and its null reference in closed form; None if it is drawn."""
        plain, closed = (
            (self.gaps, self.closed) if self.gaps_of is None else self.gaps_of(pane_query)
        )
        if not isinstance(plain, GapSum):
            return plain, closed
        return plain.less(bias) if bias else plain, null_of_sum(plain, bias)

    def _tables(self, view: View) -> tuple[list[Table], GapTables]:
        """Return the bins of the value, and the same with what interval and null reference need."""
        binning, bins = self.binning or view.pane_query.binning, view.pane_query.bins
        if self.is_of_classes:
            scopes = tuple(f"class:{k}" for k in range(view.spec.n_classes))
            found = view.binned_classes(binning, bins)
        else:
            scopes = (self.scope or view.scope,)
            found = [view.binned(scopes[0], binning, bins)]
        key = ("gap tables", scopes, binning, bins)
        return found, view.once(key, lambda: gap_tables(scopes, binning, bins, found))

    def _about_bins(self, view: View) -> Extra:
        """Return the bins of the metric: a binning of its own has the number, not the edges."""
        return {"bins": view.pane_query.bins} if self.binning else view.pane_query.about_bins


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
        about |= {} if value is None else self._further(view, value)
        if self.null_column is None:
            return Estimate(value, interval=interval, extra=about)
        null = self._null(view, sums)
        if not has_named_units(view):
            return Estimate(value, interval=interval, null=null, extra=about)
        of_units, found = sum_null_of_units(view, self.column, self.null_column, null)
        return Estimate(value, interval=interval, null=of_units, extra=about | found)

    def columns(self, view: View) -> dict[str, Floats]:
        """Return the score sums of each filled replicate, as `replication.score_columns`.

        Raises
        ------
        NoResultError
            As `score_columns`.
        """
        return score_columns(view)

    def paired_sums(self, view: View) -> Ratio:
        columns = self.columns(view)
        reject_uneven(view)
        reject_few_errors(columns)
        complete = np.zeros((2, N_REPLICATES))
        complete[:, columns["places"].astype(np.int64)] = columns[self.column], columns[self.weight]
        return complete[0], complete[1]

    def _null(self, view: View, sums: Mapping[str, float]) -> NullReference:
        assert self.null_column is not None
        moments = (sums[self.null_column], sums[self.null_column + "_variance"], sums["weight"])
        return count_null(*moments, effective_size(view)) if self.of_counts else sum_null(*moments)
