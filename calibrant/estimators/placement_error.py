"""Typical error of a metric of stored cells: what changes when the scores of a cell are not all at its mean.

Each cell that several predictions share is halved at its mean, and its halves again, until each part is one prediction or there are
many parts. Parts are placed as if the scores were uniform in the cell, and correct ratings are divided at random; ratings of a unit stay
together. The estimate is the root mean square change of the metric over a few such divisions. The worst division, of all cells at once,
gives the `error_bound`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.core.cells import Cells

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
N_DRAWS = 4
MANY = 10_000
_SEED = 1


def placement_error(cells: Cells, value_of: Callable[[Cells], float]) -> float:
    """Return the root mean square difference between the metric of cells and of their random halves; 0 if none can be divided."""
    if not _divisible(cells).any():
        return 0.0
    rng = np.random.default_rng(_SEED)
    value = value_of(cells)
    changes = []
    for _ in range(N_DRAWS):
        divided = halves(cells, rng)
        while len(divided) < MANY and _divisible(divided).any():
            divided = halves(divided, rng)
        changes.append(value_of(divided) - value)
    return float(np.sqrt(np.mean(np.square(changes))))


def halves(cells: Cells, rng: np.random.Generator) -> Cells:
    """Return cells with each divisible one in two halves, the lower first; sums of both are those of the cell.

    Parameters
    ----------
    cells : Cells
    rng : divides correct ratings
    """
    divisible = _divisible(cells)
    repeats = 1 + divisible.astype(np.int64)
    sign = np.ones(int(repeats.sum()))
    sign[np.cumsum(repeats) - repeats] = -1.0
    every = cells.select(np.repeat(np.arange(len(cells)), repeats))
    sign[~np.repeat(divisible, repeats)] = 0.0
    share = np.where(sign == 0.0, 1.0, 0.5)
    mean = every.mean
    reach = np.minimum(every.upper - mean, mean - every.lower)
    # The mean of each half of an interval is a quarter of its width from the middle.
    placed = mean + sign * np.clip((every.upper - every.lower) / 4.0, 0.0, np.maximum(reach, 0.0))
    drawn = np.repeat(rng.standard_normal(len(cells)), repeats)
    chance = mean * (1.0 - mean)
    moved = sign * drawn * 0.5 * np.sqrt(every.label_variance)
    room = 0.5 * np.minimum(every.correct, every.weight - every.correct)
    correct = share * every.correct + np.clip(moved, -room, room)
    is_lower = sign < 0.0
    return Cells(
        np.where(sign > 0.0, mean, every.lower),
        np.where(is_lower, mean, every.upper),
        _divided(every.count, sign, is_lower),
        _divided(every.predictions, sign, is_lower),
        share * every.weight,
        share * every.weight * placed,
        correct,
        share * every.correct_squared + correct - share * every.correct,
        share * every.weight_squared,
        share
        * np.divide(
            every.null_variance * placed * (1.0 - placed),
            chance,
            out=np.zeros(len(every)),
            where=chance > 0,
        ),
    )


def _divided(number: Ints, sign: Floats, is_lower: NDArray[np.bool_]) -> Ints:
    return np.where(sign == 0.0, number, np.where(is_lower, number // 2, number - number // 2))


def _divisible(cells: Cells) -> NDArray[np.bool_]:
    return cells.divisible & (cells.weight > 0)
