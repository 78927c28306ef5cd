"""Bound of the difference between the kernel error of cells and that of the raw rows, for any scores and outcomes inside the cells.

A cell represents its scores by their mean. Moving one score changes the logarithm of the kernel between two cells by at most E, apart
from a factor of the row that cancels in a kernel mean. Therefore the accuracy r at a score changes by at most
sum P (e^E - 1) |y - r| / sum P e^-E over the other samples, P their kernel weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells
from calibrant.estimators.kernel import CLIP, KernelPoints, kernel_rows

# Allowance for single precision and rounding.
_SAFETY = 1.001
_MAX_MOVED = 60.0


def kernel_error_bound(
    cells: Cells, points: KernelPoints, bandwidth: float, own_unknown: bool
) -> float:
    """Return the largest difference of `kernel_error` between these cells and their rows, each of weight one.

    Parameters
    ----------
    cells, points : as of `points_of`
    bandwidth : of the beta kernel
    own_unknown : whether a sample's own outcomes, which it leaves out, are only known as its cell's mean

    Returns
    -------
    float in [0, 1]
    """
    score, total = points.score, float(points.weight.sum())
    lower, upper = _limits(cells, score)
    odds = np.log(score) - np.log1p(-score)
    low, high = np.log(lower) - np.log1p(-lower), np.log(upper) - np.log1p(-upper)
    reach = (np.maximum(upper - score, score - lower) / bandwidth).astype(np.float32)
    stretch = np.maximum(high - odds, odds - low) / bandwidth
    slope_low, slope_high = _normaliser_slope(lower, bandwidth), _normaliser_slope(upper, bandwidth)
    rate = (points.correct_ratings / points.weight).astype(np.float32)
    found = 0.0
    for rows, matrix in kernel_rows(score, bandwidth):
        at = np.arange(*rows.indices(len(score)))
        own = matrix[at - rows.start, at]
        kernel = (matrix * points.weight).astype(np.float32)
        kernel[at - rows.start, at] = own * np.maximum(
            points.weight[at] - points.own_weight[at], 0.0
        )
        steep = np.maximum(
            np.abs((high[at, None] - slope_low).astype(np.float32)),
            np.abs((low[at, None] - slope_high).astype(np.float32)),
        )
        moved = reach * steep + np.abs((score - score[at, None]).astype(np.float32)) * stretch[
            at, None
        ].astype(np.float32)
        farthest = moved.max(axis=1)
        grown = np.exp(np.minimum(moved, _MAX_MOVED, dtype=np.float32))
        least = (kernel / grown).sum(axis=1, dtype=np.float64)
        grown -= 1.0
        own_grown = grown[at - rows.start, at].astype(np.float64)
        grown *= kernel
        row = _Row(kernel, grown, rate, least, own * points.own_weight[at], own_grown, own_unknown)
        change = np.where((farthest < _MAX_MOVED) & (row.total > 0), row.change, 1.0)
        low_rate, high_rate = row.accuracy - change - row.alone, row.accuracy + change + row.alone
        astride = (high_rate >= lower[at]) & (low_rate <= upper[at])
        change += np.where(astride, 2.0 * _scatter(lower[at], upper[at], score[at]), 0.0)
        found += float(points.weight[at] @ np.minimum(change, 1.0))
    return min(_SAFETY * found / total + CLIP, 1.0)


@dataclass(frozen=True)
class _Row:
    """Kernel weights of some rows, how much they can grow, and the resulting change of the accuracy.

    Attributes
    ----------
    kernel, grown : float32 (n_rows, n_points), weights without the samples' own, and by how much they can grow
    rate : float32 (n_points,), of correct ratings
    least : float64 (n_rows,), sum of weights that shrank as much as they can
    own, own_grown : float64 (n_rows,), a sample's own weight, and the share by which it can grow
    own_unknown : as in `kernel_error_bound`
    """

    kernel: NDArray[np.float32]
    grown: NDArray[np.float32]
    rate: NDArray[np.float32]
    least: Floats
    own: Floats
    own_grown: Floats
    own_unknown: bool

    @cached_property
    def total(self) -> Floats:
        return np.asarray(self.kernel.sum(axis=1, dtype=np.float64))

    @cached_property
    def accuracy(self) -> Floats:
        return ratio((self.kernel @ self.rate).astype(np.float64), self.total)

    @cached_property
    def alone(self) -> Floats:
        """Return how far the accuracies of a hit and of a miss, each left out, are from their mean."""
        return ratio(self.own, self.total)

    @cached_property
    def change(self) -> Floats:
        """Bound the change of the accuracy: weights that grew, times the distance of their outcomes from it."""
        hit, every = (
            (self.grown @ self.rate).astype(np.float64),
            self.grown.sum(axis=1, dtype=np.float64),
        )
        away = hit * (1.0 - self.accuracy) + np.maximum(every - hit, 0.0) * self.accuracy
        away += self.alone * every + self.own * self.own_grown
        away += self.own if self.own_unknown else 0.0
        return np.where(self.least > 0, np.minimum(ratio(away, self.least), 1.0), 1.0)


def _limits(cells: Cells, score: Floats) -> tuple[Floats, Floats]:
    """Return the limits of the scores of each cell, clipped like them; the mean where there is one score."""
    one = cells.predictions <= 1
    lower = np.where(one, score, np.minimum(np.clip(cells.lower, CLIP, 1.0 - CLIP), score))
    return lower, np.where(one, score, np.maximum(np.clip(cells.upper, CLIP, 1.0 - CLIP), score))


def _normaliser_slope(score: Floats, bandwidth: float) -> Floats:
    """Return the derivative of the logarithm of the beta function by the kernel's centre, times the bandwidth; it increases."""
    return np.asarray(
        scipy.special.digamma(score / bandwidth + 1.0)
        - scipy.special.digamma((1.0 - score) / bandwidth + 1.0)
    )


def _scatter(lower: Floats, upper: Floats, score: Floats) -> Floats:
    """Return half of the largest mean distance of a cell's scores from their mean."""
    return ratio((upper - score) * (score - lower), upper - lower)
