"""A calibration error on parts of the data: of replicates of the kept state, or of units of raw rows.

Binned metrics of raw rows take one pass a draw, because bins add; any other metric is computed anew for each subset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.batch import Batch, Votes
from calibrant.cells import Cells
from calibrant.grid import equal_width_bin
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.replication import ReplicateTables, class_tables, tables_for
from calibrant.metrics.base import (
    ClasswiseGapMetric,
    GapMetric,
    Metric,
    mean_over_classes,
)
from calibrant.pane import Pane
from calibrant.view import NotAnswerable, View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FRACTIONS = np.arange(4, 21) / 20.0
SUBSETS = ("nested", "independent")
_ORDERS, _SLOW_ORDERS = 16, 2


@dataclass(frozen=True)
class Draws:
    """Which of n things the subsets hold: `order` int64 (n_draws, 17 or 1, n); a subset of size s takes the first s.

    With one order a draw the subsets are nested.
    """

    order: Ints
    sizes: Ints

    @property
    def nested(self) -> bool:
        return self.order.shape[1] == 1

    def subset(self, draw: int, step: int) -> Ints:
        """What the subset of a fraction holds."""
        return self.order[draw, 0 if self.nested else step, : self.sizes[step]]


Curves = Callable[[View, Draws], Floats]


def draws_of(n: int, n_resamples: int, n_orders: int, subsets: str, rng: np.random.Generator) -> Draws:
    """Orders of resamples of n things, several of each resample one after another; with no resample, of the things.

    Independent subsets get an order each.
    """
    held = rng.integers(n, size=(n_resamples, n)) if n_resamples else np.arange(n)[None]
    each = len(FRACTIONS) if subsets == "independent" else 1
    order = rng.permuted(np.repeat(np.repeat(held, n_orders, axis=0)[:, None], each, axis=1), axis=2)
    return Draws(order, np.maximum(np.rint(FRACTIONS * n), 1).astype(np.int64))


@dataclass(frozen=True)
class CurveSource:
    """How a metric's curves are computed: of n things, and in how many orders each resample is affordable."""

    curves: Curves
    n: int
    n_orders: int


def curves_of(view: View, metric: Metric) -> CurveSource:
    """How a metric's curves are computed here.

    Raises
    ------
    NotAnswerable
        Neither the state nor the rows give this metric on parts of the data.
    """
    binned = binned_statistic(view, metric)
    if view.filling is not None:
        n = view.filling.n_units
        if n < 2:
            raise NotAnswerable("too_few_units", "subsets are drawn of two units or more")
        if binned is not None:
            return CurveSource(lambda v, draws: _binned_row_curves(v, metric, draws), n, _ORDERS)
        if not set(metric.needs) <= {"scope", "classes", "all_labels"}:
            raise NotAnswerable("not_from_cells", f"{metric.slug} is not read from scores and hits alone")
        return CurveSource(lambda v, draws: _row_curves(v, metric, draws), n, _SLOW_ORDERS)
    if binned is None:
        raise NotAnswerable("not_replicated", f"replicates keep equal-width bins, which do not carry {metric.slug}")
    n = len(_replicates(view, metric).weight)
    return CurveSource(lambda v, draws: _replicate_curves(v, metric, draws), n, _ORDERS)


def binned_statistic(view: View, metric: Metric) -> GapStatistic | None:
    """The metric as a statistic of equal-width bins' weights and gaps alone, where it is one."""
    if view.question.binning != "equal_width" or view.question.min_count:
        return None
    if isinstance(metric, ClasswiseGapMetric) and metric.binning is None:
        return mean_over_classes(metric.statistic)
    if isinstance(metric, GapMetric) and metric.binning is None and not metric.takes_bias:
        return metric.asked(view).statistic(0.0)
    return None


def _scope_of(view: View, metric: Metric) -> str:
    return (metric.scope if isinstance(metric, GapMetric) else None) or view.scope


def _replicates(view: View, metric: Metric) -> ReplicateTables:
    if isinstance(metric, ClasswiseGapMetric):
        return class_tables(view, view.question.bins)
    return tables_for(view, _scope_of(view, metric), view.question.bins)


def _replicate_curves(view: View, metric: Metric, draws: Draws) -> Floats:
    """The statistic of the replicates drawn so far, (n_draws, 17)."""
    tables = _replicates(view, metric)
    statistic = binned_statistic(view, metric)
    assert statistic is not None
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for i, size in enumerate(draws.sizes):
        times = _times_taken(draws.order[:, 0 if draws.nested else i, :size], len(tables.weight))
        weight, difference = (
            np.tensordot(times, values, axes=1) for values in (tables.weight, tables.difference)
        )
        found[:, i] = statistic(weight, _gaps(difference, weight))
    return found


def _times_taken(taken: Ints, n: int) -> Floats:
    """How often each draw takes each of n things, (n_draws, n)."""
    place = taken + n * np.arange(len(taken))[:, None]
    return np.bincount(place.ravel(), minlength=n * len(taken)).reshape(-1, n).astype(np.float64)


def _binned_row_curves(view: View, metric: Metric, draws: Draws) -> Floats:
    """The statistic of the units drawn so far, (n_draws, 17), each draw in one pass over its rows."""
    statistic = binned_statistic(view, metric)
    assert statistic is not None
    bins, edges = view.question.bins, view.question.edges
    scopes = [f"class:{k}" for k in range(view.spec.n_classes)]
    if not isinstance(metric, ClasswiseGapMetric):
        scopes = [_scope_of(view, metric)]
    rows = [view.rows(scope) for scope in scopes]
    place = [equal_width_bin(cells.lower, bins, edges) for cells in rows]
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for i in range(len(draws.order)):
        tables = [_subset_tables(view, *each, bins, draws, i) for each in zip(rows, place, strict=True)]
        weight, difference = np.stack(tables, axis=2)
        found[i] = statistic(weight, _gaps(difference, weight))
    return found


def _subset_tables(view: View, cells: Cells, place: Ints, bins: int, draws: Draws, draw: int) -> Floats:
    """Weight and difference by bin of each subset of a draw, (2, 17, bins)."""
    assert view.filling is not None
    columns = (cells.weight, cells.correct - cells.confidence)
    copies = len(cells) // view.filling.n
    tables = np.zeros((2, len(FRACTIONS), bins))
    if not draws.nested:
        for step in range(len(FRACTIONS)):
            at = _copied(_rows_of(view, draws.subset(draw, step))[0], copies, view.filling.n)
            tables[:, step] = [np.bincount(place[at], values[at], bins) for values in columns]
        return tables
    drawn, position = _rows_of(view, draws.order[draw, 0])
    added_at = np.searchsorted(draws.sizes, position, side="right")
    at = _copied(drawn, copies, view.filling.n)
    key = np.tile(added_at, copies) * bins + place[at]
    for table, values in zip(tables, columns, strict=True):
        table[:] = np.bincount(key, values[at], len(FRACTIONS) * bins).reshape(-1, bins)
    return np.cumsum(tables, axis=1)


def _copied(rows: Ints, copies: int, n: int) -> Ints:
    """Rows of a table in which all rows stand once for each class."""
    return (rows + n * np.arange(copies)[:, None]).ravel()


def _rows_of(view: View, units: Ints) -> tuple[Ints, Ints]:
    """The rows of drawn units, and the place in the draw of each row's unit."""
    assert view.filling is not None
    if not view.filling.has_units:
        return units, np.arange(len(units))
    of_unit = view.filling.unit_index
    sorted_rows = view.once("rows by unit", lambda: np.argsort(of_unit, kind="stable"))
    size = view.once("unit sizes", lambda: np.bincount(of_unit))
    start = np.cumsum(size) - size
    position = np.repeat(np.arange(len(units)), size[units])
    within = np.arange(len(position)) - np.repeat(np.cumsum(size[units]) - size[units], size[units])
    return sorted_rows[start[units][position] + within], position


def _row_curves(view: View, metric: Metric, draws: Draws) -> Floats:
    """The metric of every subset's own rows, (n_draws, 17): exact for any metric, and slow."""
    assert view.filling is not None
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for i, j in np.ndindex(found.shape):
        rows = _rows_of(view, draws.subset(i, j))[0]
        part = View(Pane(view.spec), view.question, repeated(view.filling.batch, rows))
        value = metric.value(part)
        if value is None:
            raise NotAnswerable("no_data", f"{metric.slug} has no value on {len(rows)} rows")
        found[i, j] = value
    return found


def repeated(batch: Batch, rows: Ints) -> Batch:
    """The predictions at `rows` with their ratings, each as often as it stands there; without ids and the like."""
    votes = batch.votes
    size = np.bincount(votes.row, minlength=batch.n)
    start = np.cumsum(size) - size
    position = np.repeat(np.arange(len(rows)), size[rows])
    within = np.arange(len(position)) - np.repeat(np.cumsum(size[rows]) - size[rows], size[rows])
    at = start[rows][position] + within
    weights = None if batch.weights is None else batch.weights[rows]
    taken = Votes(position, votes.klass[at], votes.count[at])
    return Batch(batch.task, batch.scores[rows], batch.is_logits, taken, weights)


def _gaps(difference: Floats, weight: Floats) -> Floats:
    return np.divide(difference, weight, out=np.zeros_like(difference), where=weight > 0)
