"""Sorted scores with their sums under one label policy, from stored cells, raw rows or plain histograms; estimators read them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells as stored_cells
from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.batch_sums import BatchSums, CorrectRatings


@dataclass(frozen=True)
class Cells:
    """Groups of predictions, by increasing score.

    Stored cells group scores of one position of the grid; cells of raw rows group equal scores, and then
    `lower` equals `upper`. All arrays are (n_cells,).

    Attributes
    ----------
    lower, upper : float64, bounds of the scores in the cell
    count : int64, samples: ratings under `pooled`, else predictions
    predictions : int64
    weight : float64, their weight; equals `count` without weights
    confidence, correct : float64, weighted sums of the score and of correct ratings
    correct_squared : float64, weighted sum of squared correct ratings of a sample
    weight_squared : float64, sum of squared weights of the samples
    null_variance : float64, variance of `correct` if labels were drawn from the predictions, a unit's fully dependent
    """

    lower: Floats
    upper: Floats
    count: Ints
    predictions: Ints
    weight: Floats
    confidence: Floats
    correct: Floats
    correct_squared: Floats
    weight_squared: Floats
    null_variance: Floats

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def mean(self) -> Floats:
        """Mean score of each cell; nan if it has no weight."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.confidence / self.weight)

    @cached_property
    def rate(self) -> Floats:
        """Share of correct ratings of each cell; nan if it has no weight."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.correct / self.weight)

    @property
    def gap(self) -> Floats:
        """Accuracy minus mean confidence of each cell, 0 if it has no weight."""
        difference = self.correct - self.confidence
        return ratio(difference, self.weight)

    def grouped(self, group: Ints, n_groups: int) -> Cells:
        """Return cells summed by `group`, int64 (n_cells,); groups without a cell are zero.

        Bounds are those of the group's own cells; of empty groups they are nan.
        """

        def total(values: Floats) -> Floats:
            return np.bincount(group, values, n_groups).astype(np.float64)

        lower, upper = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
        np.minimum.at(lower, group, self.lower)
        np.maximum.at(upper, group, self.upper)
        empty = np.isinf(lower)
        lower[empty], upper[empty] = np.nan, np.nan
        return Cells(
            lower,
            upper,
            np.bincount(group, self.count, n_groups).astype(np.int64),
            np.bincount(group, self.predictions, n_groups).astype(np.int64),
            *(total(getattr(self, name)) for name in SUM_FIELDS),
        )

    def select(self, keep: NDArray[np.bool_] | Ints | slice) -> Cells:
        """Return the cells marked in `keep`, those at its places, or those of a slice."""
        return Cells(*(getattr(self, name)[keep] for name in FIELDS))

    def together(self) -> Cells:
        """Return cells with weight, equal scores merged: rows of one score become one cell."""
        cells = self.select(self.weight > 0)
        is_first = np.diff(cells.lower, prepend=np.nan) != 0.0
        is_first |= np.diff(cells.upper, prepend=np.nan) != 0.0
        return (
            cells if is_first.all() else cells.grouped(np.cumsum(is_first) - 1, int(is_first.sum()))
        )

    def at_places(self, place: Ints) -> Cells:
        """Return cells summed by equal place; `place` int64 (n_cells,)."""
        group = np.unique(place, return_inverse=True)[1]
        return self.grouped(group, int(group.max()) + 1) if len(group) else self

    @property
    def divisible(self) -> NDArray[np.bool_]:
        """Cells whose predictions may have different scores: several predictions, and more than one possible score; (n_cells,)."""
        return np.asarray((self.upper > self.lower) & (self.predictions > 1))

    @property
    def largest_shift(self) -> tuple[Floats, Floats]:
        """Largest change by a part of a cell of a sum of correct minus scores: up (its correct) and down (its incorrect).

        Zero for cells that cannot be divided: those with a single score or prediction.
        """
        divisible = self.divisible
        up = np.where(divisible, self.correct * (1.0 - self.lower), 0.0)
        return up, np.where(divisible, (self.weight - self.correct) * self.upper, 0.0)

    @property
    def label_variance(self) -> Floats:
        """Variance of `correct` if ratings are drawn at the cell's own rate; ratings of a unit are fully dependent, as in `null_variance`."""
        chance, own = self.mean * (1.0 - self.mean), self.rate * (1.0 - self.rate)
        return np.divide(
            np.maximum(self.null_variance * own, 0.0),
            chance,
            out=np.zeros(len(self)),
            where=(chance > 0) & (own > 0),
        )

    @property
    def largest_covariance(self) -> Floats:
        """Bound of each cell's weighted sum of (score - mean)(correct - rate): Cauchy, Schwarz, Bhatia, Davis."""
        spread = np.maximum((self.upper - self.mean) * (self.mean - self.lower), 0.0)
        chance = np.maximum(self.rate * (1.0 - self.rate), 0.0)
        return np.where(self.predictions > 1, self.weight * np.sqrt(spread * chance), 0.0)


SUM_FIELDS = (
    "weight",
    "confidence",
    "correct",
    "correct_squared",
    "weight_squared",
    "null_variance",
)
FIELDS = ("lower", "upper", "count", "predictions", *SUM_FIELDS)


@dataclass(frozen=True)
class Table:
    """Cells summed by bin, with the bins' nominal edges.

    `edges` float64 (n_bins + 1,) are k / n_bins for equal-width bins and the observed cuts for equal-mass ones.
    Bins below the query's `min_count` are zero, and `discarded_weight` is their weight.
    """

    cells: Cells
    edges: Floats
    discarded_weight: float

    @property
    def n_bins(self) -> int:
        return len(self.cells)

    @classmethod
    def of(cls, cells: Cells, edges: Floats, least: float, is_weighted: bool) -> Table:
        """Return a table without the bins below `least`: samples, or mass if predictions have weights."""
        if not least:
            return cls(cells, edges, 0.0)
        size = cells.weight if is_weighted else cells.count.astype(np.float64)
        few = (size < least) & (cells.weight > 0)
        discarded = float(cells.weight[few].sum())
        emptied = Cells(
            *(np.where(few, 0, getattr(cells, name)) if name not in ("lower", "upper") else getattr(cells, name)
              for name in Cells.__dataclass_fields__)
        )  # fmt: skip
        return cls(emptied, edges, discarded)


def equal_mass_groups(weight: Floats, n_bins: int) -> Ints:
    """Return the group of every cell such that groups have nearly equal weight and no cell is split.

    Cuts are the first cells whose cumulated weight reaches j / n_bins of the total. So ties stay together, and there can be
    fewer than `n_bins` groups. Groups are numbered consecutively from 0.

    Parameters
    ----------
    weight : float64 (n_cells,), positive, sorted by score
    n_bins : int

    Returns
    -------
    int64 (n_cells,)
    """
    if len(weight) == 0:
        return np.zeros(0, np.int64)
    before = np.concatenate([[0.0], np.cumsum(weight)[:-1]])
    total = before[-1] + weight[-1]
    raw = np.floor(before * n_bins / total * (1.0 + 1e-12)).astype(np.int64)
    return np.asarray(np.cumsum(np.diff(raw, prepend=raw[0]) > 0), np.int64)


def cuts_inside(cells: Cells, n_bins: int) -> Ints:
    """Count the n_bins - 1 cuts into equal mass inside each divisible cell; int64 (n_cells,)."""
    after = np.cumsum(cells.weight) * n_bins / cells.weight.sum()
    before = np.concatenate([[0.0], after[:-1]])
    cuts = np.maximum(np.ceil(after * (1 - 1e-12)) - 1 - np.floor(before * (1 + 1e-12)), 0)
    return np.asarray(cuts * cells.divisible, np.int64)


def rank_groups(n: int, n_bins: int) -> Ints:
    """Return the group of each of n rows sorted by score: consecutive groups whose sizes differ by at most one, larger first.

    Equal scores may be in different groups, as in the papers' code. Groups without a row are not numbered.

    Examples
    --------
    >>> rank_groups(5, 3).tolist()
    [0, 0, 1, 1, 2]
    """
    small, larger = divmod(n, n_bins)
    sizes = np.full(min(n_bins, n), small)
    sizes[: larger if small else n] += 1
    return np.repeat(np.arange(len(sizes)), sizes)


def under_policy(policy: int, lower: Floats, upper: Floats, counts: Ints, sums: Floats) -> Cells:
    """Return the columns of one policy."""
    at = {name: sums[i] for i, name in enumerate(stored_cells.SUMS)}
    suffix = "_pooled" if policy == 0 else ""
    correct = at["correct_" + ("pooled", "mean", "majority", "single")[policy]]
    return Cells(
        lower,
        upper,
        counts[1] if policy == 0 else counts[0],
        counts[0],
        at["weight" + suffix],
        at["confidence" + suffix],
        correct,
        at["correct_mean_squared"] if policy == 1 else correct,
        at["weight_squared" + suffix],
        at["null_variance" + suffix],
    )


def cells_of_rows(batch_sums: BatchSums, policy: int, scope: str) -> Cells:
    """Return one cell for each labelled row, in the rows' order; for `all`, class after class."""
    pairs = _scores_and_correct(batch_sums, scope)
    return _summed(batch_sums, policy, pairs[0], np.arange(len(pairs[0])), *pairs)


def cells_of_scores(batch_sums: BatchSums, policy: int, scope: str) -> Cells:
    """Return one cell for each distinct score of the labelled rows, sorted by score."""
    pairs = _scores_and_correct(batch_sums, scope)
    unique, place = np.unique(pairs[0], return_inverse=True)
    return _summed(batch_sums, policy, unique, place, *pairs)


def _summed(
    batch_sums: BatchSums,
    policy: int,
    bounds: Floats,
    place: Ints,
    score: Floats,
    correct_ratings: CorrectRatings,
    correct_at: Ints,
) -> Cells:
    """Return the sums of rows whose scores are in the cells at `place`; what all rows share is a factor of their sums."""
    n = np.bincount(place, minlength=len(bounds))
    constant, pooled = batch_sums.constant_ratings, policy == 0
    weight: Any = batch_sums.weights if constant is None else 1.0
    ratings: Any = (batch_sums.n_ratings if constant is None else constant) if pooled else 1.0  # fmt: skip
    size_of_unit = batch_sums.unit_size if batch_sums.has_units else 1.0

    def total(factor: Any, values: Floats | None = None) -> Floats:
        each: Any = values
        if np.ndim(factor):
            each = np.resize(factor, len(place)) * (1.0 if values is None else values)
        sums = n if each is None else np.bincount(place, each, len(bounds))
        return np.asarray(sums if np.ndim(factor) else factor * sums, np.float64)

    def of_correct(values: Floats) -> Floats:
        return np.bincount(place[correct_at], values, len(bounds)).astype(np.float64)

    share = correct_ratings.columns[2 + policy]
    own = batch_sums.weights[correct_ratings.row] * share
    correct = of_correct(own)
    return Cells(
        bounds,
        bounds,
        total(ratings).astype(np.int64),
        n,
        total(weight * ratings),
        total(weight * ratings, score),
        correct,
        of_correct(own * share) if policy == 1 else correct,
        total(weight**2 * ratings),
        total(size_of_unit * weight**2 * ratings**2, score * (1.0 - score)),
    )


def _scores_and_correct(batch_sums: BatchSums, scope: str) -> tuple[Floats, CorrectRatings, Ints]:
    """Return the rows' scores under a scope, their ratings, and the score index of each rating."""
    kind, _, name = scope.partition(":")
    if kind == "top_label":
        return batch_sums.confidence, batch_sums.top_correct, batch_sums.top_correct.row
    if kind == "all":
        return (
            batch_sums.columns.ravel(),
            batch_sums.correct_ratings,
            batch_sums.correct_ratings.class_index * batch_sums.n + batch_sums.correct_ratings.row,
        )
    class_index = 1 if kind == "positive" else int(name)
    correct_ratings = batch_sums.correct_ratings.where(
        batch_sums.correct_ratings.class_index == class_index
    )
    return batch_sums.columns[class_index], correct_ratings, correct_ratings.row


def with_histogram(cells: Cells, table: Floats, bins: int) -> Cells:
    """Return bins with a plain histogram's numbers added; its samples count as independent with weight one."""
    count, confidence, correct = table.reshape(3, bins, -1).sum(axis=2)
    mean = ratio(confidence, count)
    return Cells(
        cells.lower,
        cells.upper,
        cells.count + np.round(count).astype(np.int64),
        cells.predictions,
        cells.weight + count,
        cells.confidence + confidence,
        cells.correct + correct,
        cells.correct_squared + correct,
        cells.weight_squared + count,
        cells.null_variance + np.maximum(count * mean * (1.0 - mean), 0.0),
    )
