"""Cells of pairs of logits: square cells of a fixed width, with first and second moments of the logits in each.

One temperature per class changes the probability of a row by both of its logits, so that neither the probability nor the
log-odds determine a loss. A cell's moments give the loss at any two temperatures with a bounded error
(`calibrant/calibrators/temperature/logit_surface.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Counts, Sums
from calibrant.accumulators.ranges import MASS, BlockColumns, Range, within
from calibrant.accumulators.sparse import SparseBlock
from calibrant.core.arrays import Floats, Ints, distinct
from calibrant.core.batch_sums import BatchSums
from calibrant.core.label_policies import POLICIES
from calibrant.core.logits import relative_logits

WIDTH = 0.25
# Rows with a logit beyond it are counted and have no cell.
MAX_LOGIT = 2.0**20
MAX_LEVEL = 22
_HALF = 1 << 22
_ROW = 2 * _HALF
# After the cells: rows whose class 0, or class 1, counts as impossible. No temperature changes them.
MASKED_PLACE = _ROW * _ROW
SIZE = MASKED_PLACE + 2
MOMENTS = ("weight", "first", "second", "first_squared", "product", "second_squared")
RIGHT = ("right", "right_first", "right_second")
SUMS = (
    *(f"{name}_pooled" for name in MOMENTS),
    *MOMENTS,
    *(f"{name}_{policy}" for policy in POLICIES for name in RIGHT),
)
COUNTS = ("predictions",)


class LogitCells(SparseBlock):
    """Cells of one table. `counts` and `sums` are of the filled cells only.

    Attributes
    ----------
    level : the cells are `WIDTH` times 2^level wide
    """

    __slots__ = ("level",)

    def __init__(self, n_counts: int, n_sums: int, size: int) -> None:
        super().__init__(n_counts, n_sums, size)
        self.level = 0

    @classmethod
    def zero(cls, level: int = 0) -> LogitCells:
        empty = cls(len(COUNTS), len(SUMS), SIZE)
        empty.level = level
        return empty

    @property
    def counts(self) -> Counts:
        return self.filled()[1]

    @property
    def sums(self) -> Sums:
        return self.filled()[2]

    @property
    def width(self) -> float:
        """Width of a cell in both logits."""
        return WIDTH * 2.0**self.level

    @property
    def corners(self) -> Floats:
        """Lower logits of each filled cell, (2, cells); 0 for rows with an impossible class."""
        places = self.filled()[0]
        inside = places < MASKED_PLACE
        return np.where(inside, self.width * (np.stack(np.divmod(places, _ROW)) - _HALF), 0.0)

    @property
    def is_masked(self) -> NDArray[np.bool_]:
        """Whether a filled cell is of rows with an impossible class, (cells,)."""
        return self.filled()[0] >= MASKED_PLACE

    def copy(self) -> LogitCells:
        twin = LogitCells.zero(self.level)
        twin._places, twin._counts, twin._sums = self.filled()
        return twin

    def coarsen(self, level: int) -> None:
        """Merge cells four by four until they are of that level; finer ones only."""
        while self.level < level:
            self._places, self._counts, self._sums = _coarser(self.filled(), self.width)
            self.level += 1

    def _take(self, other: SparseBlock | LogitCells, sign: int) -> None:  # type: ignore[override]
        assert isinstance(other, LogitCells)
        same = other.copy()
        same.coarsen(self.level)
        self.coarsen(same.level)
        super()._take(same, sign)


def _coarser(cells: tuple[Ints, Counts, Sums], width: float) -> tuple[Ints, Counts, Sums]:
    """Return cells of twice the width. Moments are of offsets from the lower corner, which moves."""
    places, counts, sums = cells
    if not len(places):
        return cells
    index = np.stack(np.divmod(places, _ROW)) - _HALF
    halves = index // 2
    inside = places < MASKED_PLACE
    shift = np.where(inside, width * (index - 2 * halves), 0.0)
    place = np.where(inside, (halves[0] + _HALF) * _ROW + halves[1] + _HALF, places)
    moved = _shifted(sums, shift)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    place, counts, sums = (
        place[order][starts],
        np.add.reduceat(counts[:, order], starts, axis=1),
        np.add.reduceat(moved[:, order], starts, axis=1),
    )
    there = counts[0] != 0
    return place[there], counts[:, there], sums[:, there]


def _shifted(sums: Sums, shift: Floats) -> Sums:
    """Return the moments of the offsets after adding `shift`, (2, cells), to them."""
    (a, b), result = shift, sums.copy()
    for start in (0, len(MOMENTS)):
        w, x, y, xx, xy, yy = sums[start : start + len(MOMENTS)]
        result[start + 1 : start + len(MOMENTS)] = (
            x + a * w,
            y + b * w,
            xx + 2.0 * a * x + a * a * w,
            xy + a * y + b * x + a * b * w,
            yy + 2.0 * b * y + b * b * w,
        )
    for start in range(2 * len(MOMENTS), len(SUMS), len(RIGHT)):
        result[start + 1] += a * sums[start]
        result[start + 2] += b * sums[start]
    return result


def columns_of(level: int) -> BlockColumns:
    """Return the columns of a table of that level."""
    width = WIDTH * 2.0**level
    of: dict[str, Range] = {}
    for suffix in ("_pooled", ""):
        weight = "weight" + suffix
        of |= {
            weight: MASS,
            **{f"{name}{suffix}": within(weight, 0.0, width) for name in MOMENTS[1:3]},
        }
        of |= {f"{name}{suffix}": within(weight, 0.0, width**2) for name in MOMENTS[3:]}
    for policy in POLICIES:
        right = f"right_{policy}"
        of[right] = within("weight_pooled" if policy == "pooled" else "weight")
        of |= {f"{name}_{policy}": within(right, 0.0, width) for name in RIGHT[1:]}
    return BlockColumns(COUNTS, of, SIZE)


@dataclass(frozen=True)
class LogitRows:
    """Rows of a batch that have a cell.

    Attributes
    ----------
    is_stored : which rows have a cell, bool (n,)
    is_outside : which rows have none because a logit is beyond `MAX_LOGIT`, bool (n,)
    place : of each stored row, int64
    columns : of `SUMS`, of each stored row; equal columns are the same array
    """

    is_stored: NDArray[np.bool_]
    is_outside: NDArray[np.bool_]
    place: Ints
    columns: list[Floats]


def logit_rows(batch_sums: BatchSums) -> LogitRows:
    """Return the cells and columns of a batch that was sent as logits of two classes."""
    logits = batch_sums.batch.scores
    is_masked = np.isneginf(relative_logits(logits, axis=1))
    masked = np.logical_or(*is_masked.T)
    is_outside = np.logical_or(*(np.abs(logits) > MAX_LOGIT).T) & ~masked
    stored = ~is_outside
    logit = np.where(masked[:, None], 0.0, logits)[stored].T
    index = np.floor(logit / WIDTH).astype(np.int64)
    index = np.minimum(index, _HALF - 1)  # a logit of `MAX_LOGIT` itself
    offset = logit - WIDTH * index
    place = (index[0] + _HALF) * _ROW + index[1] + _HALF
    place = np.where(masked[stored], MASKED_PLACE + is_masked[stored, 1], place)
    offset[:, masked[stored]] = 0.0
    return LogitRows(stored, is_outside, place, list(_columns(batch_sums, stored, offset)))


def _columns(batch_sums: BatchSums, stored: NDArray[np.bool_], offset: Floats) -> Iterator[Floats]:
    (x, y), same = offset, batch_sums.constant_ratings == 1
    weight = batch_sums.weights[stored]
    pooled = weight if same else weight * batch_sums.n_ratings[stored]
    moments = [[each, each * x, each * y, each * x * x, each * x * y, each * y * y]
               for each in ((weight,) if same else (pooled, weight))]  # fmt: skip
    yield from moments[0]
    yield from moments[-1]
    correct_ratings = batch_sums.positive_correct
    shares = (
        correct_ratings.ratings,
        correct_ratings.share,
        correct_ratings.majority,
        correct_ratings.single,
    )
    right: list[Floats] = []
    for share in shares:
        if not (same and right):
            of_correct = batch_sums.weights[correct_ratings.row] * share
            sums = np.bincount(correct_ratings.row, of_correct, batch_sums.n).astype(np.float64)[
                stored
            ]
            right = [sums, sums * x, sums * y]
        yield from right


def table_of(place: Ints, columns: list[Floats]) -> LogitCells:
    """Return the table of some rows, at level 0."""
    cells, at = _distinct(place)
    summed: dict[int, Floats] = {}
    for column in columns:
        if id(column) not in summed:
            summed[id(column)] = np.bincount(at, column, len(cells)).astype(np.float64)
    table = LogitCells.zero()
    table._places = cells
    table._counts = np.bincount(at, minlength=len(cells))[None].astype(np.int64)
    table._sums = np.stack([summed[id(column)] for column in columns])
    return table


def _distinct(place: Ints) -> tuple[Ints, Ints]:
    """Return distinct places, sorted, and the index of each row's place among them."""
    index = np.stack(np.divmod(place, _ROW))
    low = index.min(axis=1)
    rows, columns = (int(each) for each in index.max(axis=1) - low + 1)
    cells, at = distinct((index[0] - low[0]) * columns + index[1] - low[1], rows * columns)
    first, second = np.divmod(cells, columns)
    return (first + low[0]) * _ROW + second + low[1], at
