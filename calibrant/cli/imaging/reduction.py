"""Voxels as weighted rows: those of a case with nearly equal probability and equal ratings become one row.

Two voxels share a row if they are in the same cell of the grid of panes (3600 equal cells, with scores on an edge separate, also
on one as float32), in the same cell of log-odds of width 0.02, and have the same numbers of ratings and of positive ratings. The
row has their mean probability, and their number as its weight; on an edge, it has the edge itself, so that no rounding moves it to
another bin. Sums of each bin are then those of the voxels to rounding. Scores that are curved inside a cell are approximated: a
test compares the negative log-likelihood with that of the voxels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID = 3600
LOG_ODDS_WIDTH = 0.02
# Voxels that are reduced at once: the intermediate arrays take about 60 bytes per voxel.
VOXELS = 2_000_000
_MAX_LOG_ODDS = 40.0
# Places of a score: on an edge of the grid, on an edge as float32, or between edges.
_ON_EDGE, _ON_NARROW_EDGE, _INSIDE = 0, 1, 2
_N_LOG_CELLS = int(2 * _MAX_LOG_ODDS / LOG_ODDS_WIDTH) + 3


@dataclass(frozen=True)
class WeightedRows:
    """Rows of one case.

    Attributes
    ----------
    probability : float64 (n,), mean of the voxels of the row
    positives : int64 (n,), positive ratings of each of its voxels
    rated : int64 (n,), ratings of each of its voxels, at least 1
    weight : float64 (n,), number of voxels
    """

    probability: NDArray[np.float64]
    positives: NDArray[np.int64]
    rated: NDArray[np.int64]
    weight: NDArray[np.float64]

    @property
    def n_voxels(self) -> int:
        """Number of voxels."""
        return int(self.weight.sum())

    def n_of(self, per_voxel: NDArray[Any]) -> int:
        """Return the sum over voxels of a number of each row's voxels."""
        return int(self.weight @ per_voxel)

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """Ratings by class, (n, 2)."""
        return np.column_stack([self.rated - self.positives, self.positives])


def reduced(
    probability: NDArray[np.floating],
    positives: NDArray[np.unsignedinteger[Any]],
    rated: NDArray[np.uint8],
    region: NDArray[np.bool_] | None = None,
    base: int = 256,
) -> WeightedRows:
    """Reduce voxels that have a rating to weighted rows.

    Instead of numbers of positive ratings, `positives` may be other numbers below `base`, such as `CaseArrays.pattern`.

    Examples
    --------
    >>> rows = reduced(np.array([0.5, 0.5, 0.9, 0.7]), np.array([1, 1, 0, 0], np.uint8), np.array([2, 2, 1, 0], np.uint8))
    >>> rows.probability.tolist(), rows.positives.tolist(), rows.rated.tolist(), rows.weight.tolist()
    ([0.5, 0.9], [1, 0], [2, 1], [2.0, 1.0])
    """
    flat, marked, of_voxel = probability.reshape(-1), positives.reshape(-1), rated.reshape(-1)
    inside = None if region is None else region.reshape(-1)
    keys: NDArray[np.int64] = np.zeros(0, np.int64)
    sums = np.zeros((2, 0))
    for first in range(0, flat.size, VOXELS):
        part = slice(first, first + VOXELS)
        counts = of_voxel[part] > 0
        if inside is not None:
            counts &= inside[part]
        exact = np.asarray(flat[part][counts], np.float64)
        key = _key(exact, marked[part][counts], of_voxel[part][counts], base)
        found, place = np.unique(key, return_inverse=True)
        more = np.stack(
            [np.bincount(place, minlength=len(found)), np.bincount(place, exact, len(found))]
        )
        merged, at = np.unique(np.concatenate([keys, found]), return_inverse=True)
        together = np.concatenate([sums, more], axis=1)
        sums = np.stack([np.bincount(at, each, len(merged)) for each in together])
        keys = merged
    probability = _of_cell(keys // base // 256 // _N_LOG_CELLS, sums[1] / sums[0])
    return WeightedRows(probability, keys % base, keys // base % 256, sums[0])


def _of_cell(cell: NDArray[np.int64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of rows: the edge itself where they are on one, else their mean."""
    edge = cell // 3 / GRID
    exact = np.where(cell % 3 == _ON_EDGE, edge, edge.astype(np.float32).astype(np.float64))
    return np.where(cell % 3 == _INSIDE, np.clip(mean, 0.0, 1.0), exact)


def _key(
    p: NDArray[np.float64],
    y: NDArray[np.unsignedinteger[Any]],
    n: NDArray[np.uint8],
    base: int,
) -> NDArray[np.int64]:
    """Return a number for each voxel that is equal within a row."""
    scaled = p * GRID
    nearest = np.rint(scaled)
    edge = nearest / GRID
    on_edge, on_narrow = edge == p, edge.astype(np.float32) == p
    place = np.where(on_edge, _ON_EDGE, np.where(on_narrow, _ON_NARROW_EDGE, _INSIDE))
    whole = np.where(on_edge | on_narrow, nearest, np.floor(scaled))
    cell = (3 * whole + place).astype(np.int64)
    with np.errstate(divide="ignore"):
        odds = np.log(p) - np.log1p(-p)
    odds = np.clip(odds, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
    log_cell = np.floor((odds + _MAX_LOG_ODDS) / LOG_ODDS_WIDTH).astype(np.int64)
    return np.asarray(
        ((cell * _N_LOG_CELLS + log_cell) * 256 + n) * base + y.astype(np.int64), np.int64
    )
