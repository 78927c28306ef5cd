"""Typical error of a metric of stored cells: what changes when the scores of a cell are not all at its mean.

Each cell that several predictions share is halved at its mean, and its halves again, until each part is one prediction or there are
many parts. Parts are placed as if the scores were uniform in the cell, and correct ratings are divided at random; ratings of a unit stay
together. The estimate is the root mean square change of the metric over a few such divisions. The worst division, of all cells at once,
gives the `error_bound`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.cells import Cells

N_DRAWS = 4
MANY = 10_000
_SEED = 1


def placement_error(cells: Cells, values_of: Callable[[Cells, Floats], Floats]) -> float:
    """Return the root mean square difference between the metric of cells and of their random halves; 0 if none can be divided.

    Parameters
    ----------
    cells : Cells
    values_of : of cells and float64 (n_rows, n_cells), several rows of correct ratings in place of their own, to float64 (n_rows,)
    """
    if not _divisible(cells).any():
        return 0.0
    changes = values_of(*divided_ratings(cells)) - values_of(cells, cells.correct[None])
    return float(np.sqrt(np.mean(np.square(changes))))


def divided_ratings(cells: Cells) -> tuple[Cells, Floats]:
    """Return cells in many parts, and several random divisions of the correct ratings among these, float64 (n_draws, n_parts).

    Where cells are cut and what their parts weigh is the same in all of them: only the division of correct ratings is random. In place of
    the squares of correct ratings, the parts have what these exceed the ratings by.
    """
    # What the squares of correct ratings exceed the ratings by is divided as the weight is.
    beyond = replace(cells, correct_squared=cells.correct_squared - cells.correct)
    levels = [_Halves(beyond)]
    while len(levels[-1].cells) < MANY and _divisible(levels[-1].cells).any():
        levels.append(_Halves(levels[-1].cells))
    sizes = [len(level.whole) for level in levels]
    drawn = _normals(1 << (N_DRAWS * sum(sizes) - 1).bit_length())[: N_DRAWS * sum(sizes)]
    parts = np.split(drawn.reshape(N_DRAWS, -1), np.cumsum(sizes)[:-1], axis=1)
    correct = cells.correct[None]
    for level, some in zip(levels, parts, strict=True):
        correct = level.divided(correct, some)
    return levels[-1].cells, correct


class _Halves:
    """Cells with each divisible one in two halves, the lower first; sums of both are those of the cell.

    Attributes
    ----------
    whole : the cells before
    cells : the halves, without the correct ratings of each
    """

    def __init__(self, whole: Cells) -> None:
        self.whole = whole
        is_halved = _divisible(whole)
        self._halved = np.flatnonzero(is_halved)
        self._index = np.repeat(np.arange(len(whole)), 1 + is_halved)
        self._upper = self._halved + np.arange(1, len(self._halved) + 1)
        self._share = np.where(is_halved, 0.5, 1.0)
        chance = whole.mean * (1.0 - whole.mean)
        self._per_chance = ratio(whole.null_variance, chance)
        self.cells = self._halves()

    def _halves(self) -> Cells:
        whole, upper = self.whole, self._upper
        lower, mean = upper - 1, whole.mean
        reach = np.maximum(np.minimum(whole.upper - mean, mean - whole.lower), 0.0)
        # The mean of each half of an interval is a quarter of its width from the middle.
        moved = np.clip((whole.upper - whole.lower) / 4.0, 0.0, reach)
        weight = self._shared(whole.weight)
        placed = mean[self._index]
        placed[lower] -= moved[self._halved]
        placed[upper] += moved[self._halved]
        start, end = whole.lower[self._index], whole.upper[self._index]
        start[upper] = end[lower] = mean[self._halved]
        return Cells(
            start,
            end,
            self._split(whole.count),
            self._split(whole.predictions),
            weight,
            weight * placed,
            weight,
            self._shared(whole.correct_squared),
            self._shared(whole.weight_squared),
            self._shared(self._per_chance) * placed * (1.0 - placed),
        )

    def divided(self, correct: Floats, drawn: Floats) -> Floats:
        """Return the correct ratings of the halves, where normal draws divide those of the cells.

        Parameters
        ----------
        correct : float64 (n_draws, n_cells), or (1, n_cells) where they are the same for all draws
        drawn : float64 (n_draws, n_cells)
        """
        halved, upper = self._halved, self._upper
        own, weight = correct[:, halved], self.whole.weight[halved]
        rate = own / weight
        spread = np.sqrt(np.maximum(rate * (1.0 - rate) * self._per_chance[halved], 0.0))
        room = np.minimum(own, weight - own)
        moved = 0.5 * np.clip(spread * drawn[:, halved], -room, room)
        found = np.broadcast_to(
            (self._share * correct)[:, self._index], (len(drawn), len(self.cells))
        ).copy()
        found[:, upper - 1] -= moved
        found[:, upper] += moved
        return found

    def _shared(self, values: Floats) -> Floats:
        """Return half of the values of halved cells for each half, and all of those of the others."""
        return (self._share * values).take(self._index)

    def _split(self, numbers: Ints) -> Ints:
        """Split integers between both halves; the upper half gets the larger part."""
        found = numbers[self._index]
        found[self._upper - 1] //= 2
        found[self._upper] -= found[self._upper - 1]
        return found


def _divisible(cells: Cells) -> NDArray[np.bool_]:
    return cells.divisible & (cells.weight > 0)


@lru_cache(maxsize=4)
def _normals(n: int) -> Floats:
    """Return the first draws of one sequence: its start does not depend on how many are drawn."""
    drawn = np.random.default_rng(_SEED).standard_normal(n)
    drawn.setflags(write=False)
    return drawn
