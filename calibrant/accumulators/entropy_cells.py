"""Uncertainty table: errors by cell of the normalised entropy of the probabilities.

Confidence is stored too, because a calibrated model errs according to its confidence, not to its entropy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import (
    HITS,
    MASS,
    BlockColumns,
    in_cell,
    variance_of,
    weight_of,
    within,
)
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import Grid, grid_of
from calibrant.core.histogram_fields import UNCERTAINTY_CELLS
from calibrant.core.spec import PaneSpec
from calibrant.raters.label_comparison import entropy

RANGES = {
    "weight_pooled": MASS,
    "weight": weight_of("predictions"),
    "uncertainty_pooled": in_cell("weight_pooled"),
    "uncertainty": in_cell("weight"),
    "confidence_pooled": within("weight_pooled"),
    "confidence": within("weight"),
    **HITS,
    "null_variance_pooled": variance_of("weight_pooled"),
    "null_variance": variance_of("weight"),
}
SUMS = tuple(RANGES)
CELLS = UNCERTAINTY_CELLS


def uncertainty_grid() -> Grid:
    """Return the grid of uncertainties: 240 cells with separate edges, as many as its bins can require."""
    return grid_of(CELLS)


def normalised_entropy(probabilities: Floats) -> Floats:
    """Return the entropy divided by the logarithm of the number of classes; (n, n_classes) to (n,) in [0, 1].

    Examples
    --------
    >>> normalised_entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    return np.asarray(np.minimum(entropy(probabilities) / np.log(probabilities.shape[1]), 1.0))


def fill_uncertainty(block: Block, batch_sums: BatchSums, place: Ints, uncertainty: Floats) -> None:
    """Add a batch's predictions to the cells at `place`, int64 (n,)."""
    size = block.size
    weights, ratings = batch_sums.weights, batch_sums.n_ratings.astype(np.float64)
    confidence, correct_ratings = batch_sums.confidence, batch_sums.top_correct
    spread = confidence * (1.0 - confidence) * batch_sums.unit_size * weights**2
    block.counts[0] += np.bincount(place, minlength=size)
    pooled = weights * ratings
    columns = (
        pooled,
        weights,
        pooled * uncertainty,
        weights * uncertainty,
        pooled * confidence,
        weights * confidence,
    )
    for i, values in enumerate(columns):
        block.sums[i] += np.bincount(place, values, size)
    at, own = place[correct_ratings.row], weights[correct_ratings.row]
    shares: tuple[Floats | NDArray[np.bool_], ...] = (
        correct_ratings.ratings,
        correct_ratings.share,
        correct_ratings.majority,
        correct_ratings.single,
    )
    for i, share in enumerate(shares, start=len(columns)):
        block.sums[i] += np.bincount(at, own * share, size)
    block.sums[10] += np.bincount(place, spread * ratings**2, size)
    block.sums[11] += np.bincount(place, spread, size)


class Uncertainty(Accumulator):
    """Cells of normalised entropy; `correct` refers to the top class."""

    name = "uncertainty"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        grid, totals = uncertainty_grid(), {"predictions": "n_labelled"}
        cells = BlockColumns(("predictions",), RANGES, grid.n_positions, totals=totals, edges=grid)
        return {"cells": cells}


ACCUMULATOR = Uncertainty
