"""Typical error of a statistic over bins of equal mass, when cuts fall inside stored cells.

The rows of a cell are taken in random order: a cut that leaves a share f of a cell's weight below it moves f of the cell's sum of correct
minus scores, and a random part with the variance of drawing that share without replacement. The worst order, which
`error_bound` allows, is that of all cells at once with every hit on one side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells

N_DRAWS = 64


def cut_error(
    cells: Cells,
    bins: int,
    value: float,
    statistic: Callable[[Floats, Floats], Floats],
    first_deviation: float = 0.0,
) -> float:
    """Return the root mean square difference between a value and the statistic of randomly ordered rows.

    Parameters
    ----------
    cells : Cells, in order of their scores
    bins : number of bins of equal mass
    value : of the statistic from the cells
    statistic : of weight (bins,) and sum of correct minus scores (draws, bins), to (draws,)
    first_deviation : standard deviation of the sum below the first bin, which another cut has moved
    """
    total = float(cells.weight.sum())
    if not total:
        return 0.0
    mass = np.concatenate([[0.0], np.cumsum(cells.weight)])
    difference = np.concatenate([[0.0], np.cumsum(cells.correct - cells.confidence)])
    target = total * np.arange(1, bins) / bins
    inside = np.minimum(np.searchsorted(mass[1:], target * (1.0 - 1e-12)), len(cells) - 1)
    divisible = cells.divisible[inside]
    place = np.where(divisible, target, mass[inside + 1])
    share = np.where(divisible, (target - mass[inside]) / cells.weight[inside], 0.0)
    variance = share * (1.0 - share) * cells.label_variance[inside]
    deviation = np.concatenate([[first_deviation], np.sqrt(np.maximum(variance, 0.0)), [0.0]])
    ends = np.concatenate([[0.0], place, [total]])
    sums = np.interp(ends, mass, difference) + _draws(bins + 1) * deviation
    weight = np.diff(ends)
    filled = weight > 0.0
    drawn = statistic(weight[filled], np.diff(sums, axis=1)[:, filled])
    return float(np.sqrt(np.mean((drawn - value) ** 2)))


def power_mean_gap(norm: float) -> Callable[[Floats, Floats], Floats]:
    """Return the statistic (sum of weight |gap|^norm / sum of weight)^(1 / norm)."""

    def statistic(weight: Floats, difference: Floats) -> Floats:
        gaps = np.abs(difference) / weight
        return np.asarray((gaps**norm @ weight / weight.sum()) ** (1.0 / norm))

    return statistic


def plain_mean_gap(weight: Floats, difference: Floats) -> Floats:
    """Return the mean of |gap| over bins, each counted alike."""
    return np.asarray((np.abs(difference) / weight).mean(axis=1))


@lru_cache(maxsize=16)
def _draws(columns: int) -> Floats:
    draws = np.random.default_rng(7).standard_normal((N_DRAWS, columns))
    draws.setflags(write=False)
    return draws
