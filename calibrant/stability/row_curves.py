"""Stability curves from rows: exact values on subsets of their units.

Binned metrics take one pass per draw, because bins add. Some others resample all at once. The rest are computed again for
each subset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.batch import Batch
from calibrant.core.cells import Cells
from calibrant.core.grid import equal_width_bin
from calibrant.core.pane import Pane
from calibrant.core.sampled_rows import SampledBatch
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import GapStatistic
from calibrant.metrics.metric import Metric
from calibrant.stability.subsets import FRACTIONS, N_ORDERS, CurveSource, Draws, by_fraction

READ_FROM_ROWS = frozenset({"scope", "classes", "all_labels", "uncertainty"})
# Above this number of rows, a matrix of their pairs costs more than single values of subsets.
MAX_AT_ONCE = 1500
_SLOW_ORDERS, _CLASS_ORDERS = 2, 1


class RowSubset(View):
    """Drawn rows of a raw view with repeats; their scores and correct labels are those of the complete view."""

    def __init__(self, complete: View, batch: Batch, pane: Pane, rows: Ints) -> None:
        super().__init__(pane, complete.pane_query, batch.take(rows))
        self._complete, self._at = complete, rows

    def rows(self, scope: str) -> Cells:
        """Return the drawn values of the complete view."""
        every = self._complete.rows(scope)
        assert self._complete.batch_sums is not None
        n = self._complete.batch_sums.n
        return every.select(_copied(self._at, len(every) // n, n))

    def _is_on_grid(self, scope: str) -> bool:
        """The pane is that of no row: bins are computed from the drawn rows."""
        return False

    def _cells_of(self, scope: str) -> Cells:
        rows = self.row_cells(scope)
        return rows if self._splits_ties else rows.together()


def from_rows(view: View, metric: Metric, about: dict[str, object]) -> CurveSource:
    """Return how a metric's curves are computed from the rows of a raw view.

    Raises
    ------
    NoResultError
        There are fewer than two units, rows without weight, or the metric needs more than scores and correct labels.
    """
    assert view.batch_sums is not None
    n = view.batch_sums.n_units
    if n < 2:
        raise NoResultError("too_few_units", "subsets are drawn of two units or more")
    if view.batch_sums.batch.weights is not None and not view.batch_sums.batch.weights.any():
        raise NoResultError("no_data", "every row has weight 0")
    reported = {"n_drawn": n, "exact": True, **about}
    statistic = metric.equal_bins(view.pane_query)
    if statistic is not None:
        return CurveSource(partial(_binned_curves, metric, statistic), n, N_ORDERS, reported)
    if resamples_at_once(view, metric):
        # A matrix of pairs, "canonical_ce", is as slow as values of classes.
        orders = _CLASS_ORDERS if metric.needs == ("sample",) else _SLOW_ORDERS
        return CurveSource(by_fraction(partial(_at_once, metric)), n, orders, reported)
    if not set(metric.needs) <= READ_FROM_ROWS:
        raise NoResultError(
            "not_from_cells", f"{metric.slug} is not read from scores and outcomes alone"
        )
    orders = _CLASS_ORDERS if "classes" in metric.needs else _SLOW_ORDERS
    curves = by_fraction(partial(_one_by_one, metric))
    return CurveSource(curves, n, orders, reported, one_by_one=True)


def resamples_at_once(view: View, metric: Metric) -> bool:
    """Whether the metric computes many resamples of this many rows together."""
    return metric.of_resamples is not None and len(view.rows(view.scope)) <= metric.max_resampled


def hashed(batch: Batch) -> Batch:
    """Return the scores and label counts of a batch with its prediction hashes, which choose the single rating."""
    if isinstance(batch, SampledBatch):
        return batch
    return SampledBatch(
        batch.task, batch.scores, batch.is_logits, batch.ratings, batch.weights,
        hashes=batch.prediction_hash, unit_hashes=batch.unit_hash,
    )  # fmt: skip


def _binned_curves(metric: Metric, statistic: GapStatistic, view: View, draws: Draws) -> Floats:
    """Return the statistic of the units drawn so far, (n_draws, 17), each draw in one pass over its rows."""
    bins, edges = view.pane_query.bins, view.pane_query.edges
    scopes = [metric.scope or view.scope]
    if metric.is_of_classes:
        scopes = [f"class:{k}" for k in range(view.spec.n_classes)]
    binned = [_BinnedRows.of(view, scope, bins, edges) for scope in scopes]
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for i in range(len(draws.order)):
        tables = [_subset_tables(view, rows, bins, draws, i) for rows in binned]
        weight, difference = np.stack(tables, axis=2)
        found[i] = statistic(weight, ratio(difference, weight))
    return found


@dataclass(frozen=True)
class _BinnedRows:
    """Rows of a scope with their bins, in the order of their units; a copy of all of them for each class of scope "all".

    Attributes
    ----------
    columns : weight and weighted difference
    place : bin of each row
    copies : how many
    """

    columns: tuple[Floats, Floats]
    place: Ints
    copies: int

    @classmethod
    def of(cls, view: View, scope: str, bins: int, edges: Literal["right", "left"]) -> _BinnedRows:
        """Return the rows of a view."""
        assert view.batch_sums is not None
        cells, n = view.rows(scope), view.batch_sums.n
        copies = len(cells) // n
        order = _copied(_unit_rows(view).rows, copies, n)
        columns = (cells.weight[order], (cells.correct - cells.confidence)[order])
        return cls(columns, equal_width_bin(cells.lower, bins, edges)[order], copies)


class _UnitRows(NamedTuple):
    """Rows in the order of their units, with the first one and the number of each unit; of unnamed units, each a row, without these."""

    rows: Ints
    first: Ints | None = None
    size: Ints | None = None

    def of(self, units: Ints) -> Ints:
        """Return the places of the rows of drawn units in this order."""
        if self.first is None or self.size is None:
            return units
        n = self.size[units]
        end = np.cumsum(n)
        return np.repeat(self.first[units] - end + n, n) + np.arange(end[-1])

    def each(self, units: Ints, values: Ints) -> Ints:
        """Return for each row of drawn units the value of its unit."""
        return values if self.size is None else np.repeat(values, self.size[units])


def _unit_rows(view: View) -> _UnitRows:
    return view.once("rows by unit", lambda: _make_unit_rows(view))


def _make_unit_rows(view: View) -> _UnitRows:
    assert view.batch_sums is not None
    of_unit = view.batch_sums.unit_index
    if not view.batch_sums.has_units:
        return _UnitRows(of_unit)
    size = np.bincount(of_unit)
    return _UnitRows(np.argsort(of_unit, kind="stable"), np.cumsum(size) - size, size)


def _subset_tables(view: View, rows: _BinnedRows, bins: int, draws: Draws, draw: int) -> Floats:
    """Return weight and difference by bin of each subset of a draw, (2, 17, bins)."""
    assert view.batch_sums is not None
    n, unit_rows = view.batch_sums.n, _unit_rows(view)
    if draws.nested:
        units = draws.order[draw, 0]
        # A unit is in every subset that is larger than its position in the draw.
        steps = np.searchsorted(draws.sizes, np.arange(len(units)), side="right")
    else:
        subsets = [draws.subset(draw, step) for step in range(len(FRACTIONS))]
        units, steps = np.concatenate(subsets), np.repeat(np.arange(len(subsets)), [*map(len, subsets)])  # fmt: skip
    first = unit_rows.each(units, steps * bins)
    at = _copied(unit_rows.of(units), rows.copies, n)
    key = (first if rows.copies == 1 else np.tile(first, rows.copies)) + rows.place[at]
    tables = np.zeros((2, len(FRACTIONS), bins))
    for table, values in zip(tables, rows.columns, strict=True):
        table[:] = np.bincount(key, values[at], len(FRACTIONS) * bins).reshape(-1, bins)
    return np.cumsum(tables, axis=1) if draws.nested else tables


def _copied(rows: Ints, copies: int, n: int) -> Ints:
    """Return rows of a table that contains all rows once per class."""
    if copies == 1:
        return rows
    return (rows + n * np.arange(copies)[:, None]).ravel()


def _rows_of(view: View, units: Ints) -> Ints:
    """Return the rows of drawn units."""
    unit_rows = _unit_rows(view)
    return unit_rows.rows[unit_rows.of(units)]


def _at_once(metric: Metric, view: View, draws: Draws, step: int) -> Floats:
    """Return the metric of the rows of each subset of a fraction, (n_draws,), all together."""
    assert view.batch_sums is not None and metric.of_resamples is not None
    return metric.of_resamples(view, draws.times(step)[:, view.batch_sums.unit_index])


def _one_by_one(metric: Metric, view: View, draws: Draws, step: int) -> Floats:
    """Return the metric of the rows of each subset of a fraction, (n_draws,), one after the other."""
    assert view.batch_sums is not None
    batch, empty = hashed(view.batch_sums.batch), Pane(view.spec)
    rows = (_rows_of(view, draws.subset(draw, step)) for draw in range(len(draws.order)))
    values = [metric.value(RowSubset(view, batch, empty, each)) for each in rows]
    return np.array([np.nan if value is None else value for value in values])
