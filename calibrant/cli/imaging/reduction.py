"""Voxels as weighted rows: those of a case with nearly equal probability and equal ratings become one row.

Two voxels share a row if they are in the same cell of the grid of panes (3600 equal cells, with scores on an edge separate), in the
same cell of log-odds of width 0.02, and have the same number of positive ratings. The row has their mean probability, and their number
as its weight. Sums of each bin are then those of the voxels to rounding. Scores that are curved inside a cell are approximated: a
test compares the negative log-likelihood with that of the voxels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRID = 3600
LOG_ODDS_WIDTH = 0.02
# Voxels that are reduced at once: the intermediate arrays take about 60 bytes per voxel.
VOXELS = 2_000_000
_MAX_LOG_ODDS = 40.0
_N_LOG_CELLS = int(2 * _MAX_LOG_ODDS / LOG_ODDS_WIDTH) + 3


@dataclass(frozen=True)
class WeightedRows:
    """Rows of one case.

    Attributes
    ----------
    probability : float64 (n,), mean of the voxels of the row
    positives : int64 (n,), positive ratings of each of its voxels
    weight : float64 (n,), number of voxels
    """

    probability: NDArray[np.float64]
    positives: NDArray[np.int64]
    weight: NDArray[np.float64]

    @property
    def n_voxels(self) -> int:
        """Number of voxels."""
        return int(self.weight.sum())


def reduced(
    probability: NDArray[np.floating],
    positives: NDArray[np.uint8],
    region: NDArray[np.bool_] | None = None,
) -> WeightedRows:
    """Reduce voxels to weighted rows.

    Examples
    --------
    >>> rows = reduced(np.array([0.5, 0.5, 0.9]), np.array([1, 1, 0], np.uint8))
    >>> rows.probability.tolist(), rows.positives.tolist(), rows.weight.tolist()
    ([0.5, 0.9], [1, 0], [2.0, 1.0])
    """
    flat, rated = probability.reshape(-1), positives.reshape(-1)
    inside = None if region is None else region.reshape(-1)
    keys: NDArray[np.int64] = np.zeros(0, np.int64)
    sums = np.zeros((2, 0))
    for first in range(0, flat.size, VOXELS):
        part = slice(first, first + VOXELS)
        p, y = flat[part], rated[part]
        if inside is not None:
            p, y = p[inside[part]], y[inside[part]]
        exact = np.asarray(p, np.float64)
        found, place = np.unique(_key(exact, y), return_inverse=True)
        more = np.stack(
            [np.bincount(place, minlength=len(found)), np.bincount(place, exact, len(found))]
        )
        merged, at = np.unique(np.concatenate([keys, found]), return_inverse=True)
        together = np.concatenate([sums, more], axis=1)
        sums = np.stack([np.bincount(at, each, len(merged)) for each in together])
        keys = merged
    weight = sums[0]
    return WeightedRows(np.clip(sums[1] / weight, 0.0, 1.0), keys % 256, weight)


def _key(p: NDArray[np.float64], y: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return a number for each voxel that is equal within a row."""
    scaled = p * GRID
    nearest = np.rint(scaled)
    on_edge = nearest / GRID == p
    cell = np.where(on_edge, 2 * nearest, 2 * np.floor(scaled) + 1).astype(np.int64)
    with np.errstate(divide="ignore"):
        odds = np.log(p) - np.log1p(-p)
    odds = np.clip(odds, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
    log_cell = np.floor((odds + _MAX_LOG_ODDS) / LOG_ODDS_WIDTH).astype(np.int64)
    return np.asarray((cell * _N_LOG_CELLS + log_cell) * 256 + y, np.int64)
