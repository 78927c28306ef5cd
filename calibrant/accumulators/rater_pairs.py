"""Observed disagreement of raters, by cell of the predicted probability of disagreement: 1 - sum z^2, z the class probabilities.

Only predictions with at least two ratings are included. Each cell stores true sums, so its bins equal those computed from
raw rows, and a prediction shrunk by a constant (a Dirichlet around it) can be scored from the same cells. Squared weights
are for debiased calibration losses. Sums `..._by_ratings` weigh each prediction by its number of ratings.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import (
    MASS,
    BlockColumns,
    Range,
    in_cell,
    square_of,
    weight_of,
    within,
)
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.grid import Grid
from calibrant.core.spec import PaneSpec

DISAGREEMENT_GRID = Grid(120, refinement=1)
REPLICATE_BINS = 15
COUNTS = ("predictions",)
REPLICATE_SUMS = ("weight", "predicted", "disagreement")


def _ranges(suffix: str) -> dict[str, Range]:
    weight = "weight" + suffix
    return {
        weight: MASS if suffix else weight_of("predictions"),
        "predicted" + suffix: in_cell(weight),
        "disagreement" + suffix: within(weight),
        "predicted_squared" + suffix: in_cell(weight, 2),
        "product" + suffix: in_cell("disagreement" + suffix),  # predicted x observed
        "weight_squared" + suffix: square_of(weight),
        "disagreement_weight_squared" + suffix: within("weight_squared" + suffix),
        "disagreement_squared_weight_squared" + suffix: within(
            "disagreement_weight_squared" + suffix
        ),
        # Unbiased squared distance of z from the row's label distribution.
        "epistemic" + suffix: within(weight, -1, 2),
    }


RANGES = _ranges("") | _ranges("_by_ratings")
MOMENTS, SUMS = tuple(_ranges("")), tuple(RANGES)


class Disagreement(Accumulator):
    """Block `cells`, positions of `DISAGREEMENT_GRID`; block `replicates` (64 x 15 bins), flat in that order."""

    name = "disagreement"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        grid, totals = DISAGREEMENT_GRID, {"predictions": "several"}
        few, size = {name: RANGES[name] for name in REPLICATE_SUMS}, N_REPLICATES * REPLICATE_BINS
        return {
            "cells": BlockColumns(COUNTS, RANGES, grid.n_positions, totals=totals, edges=grid),
            "replicates": BlockColumns(COUNTS, few, size, totals=totals, edges=REPLICATE_BINS),
        }


ACCUMULATOR = Disagreement
