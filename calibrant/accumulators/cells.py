"""Cells of the fine grid, read by every binned, equal-mass, isotonic and kernel statistic.

Each cell stores true sums, never centres, so that a binned metric equals the one from raw rows to rounding. `COUNTS` and `SUMS`
name the columns. The suffix `_pooled` is for weight = ratings; the others are for weight = predictions.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import (
    HITS,
    MAX_COUNT,
    BlockColumns,
    in_cell,
    square_of,
    variance_of,
    weight_of,
    within,
)
from calibrant.core.grid import Grid
from calibrant.core.spec import PaneSpec

COUNTS = ("predictions", "ratings")
RANGES = {
    "weight_pooled": weight_of("ratings"),
    "weight": weight_of("predictions"),
    "confidence_pooled": in_cell("weight_pooled"),
    "confidence": in_cell("weight"),
    **HITS,
    "correct_mean_squared": within("correct_mean"),
    "weight_squared_pooled": square_of("weight_pooled"),
    "weight_squared": square_of("weight"),
    "null_variance_pooled": variance_of("weight_pooled"),
    "null_variance": variance_of("weight"),
}
SUMS = tuple(RANGES)


def columns_of_cells(grid: Grid, stored: int = 1, times: int | None = None) -> BlockColumns:
    """Return the columns of this file.

    Parameters
    ----------
    grid : of one table
    stored : tables in the block, one after another
    times : how often the block has every labelled prediction. Default: once in each table.
    """
    totals = {"predictions": "n_labelled", "ratings": "n_ratings"}
    few = {"ratings": within("predictions", 1, MAX_COUNT)}
    size = stored * grid.n_positions
    return BlockColumns(COUNTS, RANGES, size, few, totals, times or stored, edges=grid)


class OneTable(Accumulator):
    """Cells of one score per prediction, on the top-label grid."""

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        return {"cells": columns_of_cells(spec.top_grid)}
