"""Observed disagreement of raters, by cell of the predicted probability of disagreement: 1 - sum z^2, z the class probabilities.

Only predictions with at least two ratings are included. Each cell stores true sums, so its bins equal those computed from
raw rows, and a prediction shrunk by a constant (a Dirichlet around it) can be scored from the same cells. Squared weights
are for debiased calibration losses. Sums `..._by_ratings` weigh each prediction by its number of ratings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import (
    MASS,
    Range,
    Ranges,
    bin_edges,
    grid_edges,
    in_cell,
    square_of,
    weight_of,
    within,
)
from calibrant.core.batch_sums import N_REPLICATES, BatchSums
from calibrant.core.edge_rules import derived_rules
from calibrant.core.grid import Grid, equal_width_bin
from calibrant.raters.label_rows import LabelRows, label_rows

DISAGREEMENT_GRID = Grid(120, refinement=1)
REPLICATE_BINS = 15
COUNTS = ("predictions",)
MOMENTS = (
    "weight",
    "predicted",
    "disagreement",
    "predicted_squared",
    "product",  # predicted x observed
    "weight_squared",
    "disagreement_weight_squared",
    "disagreement_squared_weight_squared",
    "epistemic",  # unbiased squared distance of z from the row's label distribution
)
SUMS = MOMENTS + tuple(f"{name}_by_ratings" for name in MOMENTS)
REPLICATE_SUMS = ("weight", "predicted", "disagreement")


def _ranges(suffix: str) -> dict[str, Range]:
    weight = "weight" + suffix
    return {
        weight: MASS if suffix else weight_of("predictions"),
        "predicted" + suffix: in_cell(weight),
        "disagreement" + suffix: within(weight),
        "predicted_squared" + suffix: in_cell(weight, 2),
        "product" + suffix: in_cell("disagreement" + suffix),
        "weight_squared" + suffix: square_of(weight),
        "disagreement_weight_squared" + suffix: within("weight_squared" + suffix),
        "disagreement_squared_weight_squared" + suffix: within(
            "disagreement_weight_squared" + suffix
        ),
        "epistemic" + suffix: within(weight, -1, 2),
    }


RANGES = _ranges("") | _ranges("_by_ratings")
Floats = NDArray[np.float64]


class Disagreement(Accumulator):
    """Block `cells`, positions of `DISAGREEMENT_GRID`; block `replicates` (64 x 15 bins), flat in that order."""

    name = "disagreement"

    def zero(self) -> dict[str, Block]:
        return {
            "cells": Block(len(COUNTS), len(SUMS), DISAGREEMENT_GRID.n_positions),
            "replicates": Block(1, len(REPLICATE_SUMS), N_REPLICATES * REPLICATE_BINS),
        }

    def ranges(self) -> dict[str, Ranges]:
        totals = {"predictions": "several"}
        edges, bins = grid_edges(DISAGREEMENT_GRID), bin_edges(REPLICATE_BINS)
        few = {name: RANGES[name] for name in REPLICATE_SUMS}
        return {
            "cells": Ranges(COUNTS, SUMS, RANGES, totals=totals, edges=edges),
            "replicates": Ranges(COUNTS, REPLICATE_SUMS, few, totals=totals, edges=bins),
        }

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.n:
            return
        rows = label_rows(batch_sums)
        several = rows.several
        if not several.any():
            return
        columns = _moments(rows, batch_sums.weights)[:, several]
        # A row may miss a sum of one by 1e-9, and its disagreement then misses [0, 1]. Only its cell is bounded.
        score = np.clip(rows.predicted[several], 0.0, 1.0)
        rules = batch_sums.batch.edge_rules
        rules = None if rules is None else derived_rules(rules[several])
        _fill(self.blocks["cells"], DISAGREEMENT_GRID.locate(score, rules), columns)
        place = batch_sums.replicate[several] * REPLICATE_BINS + equal_width_bin(
            score, REPLICATE_BINS, rules=rules
        )
        _fill(self.blocks["replicates"], place, columns[: len(REPLICATE_SUMS)])


def _moments(rows: LabelRows, weight: Floats) -> Floats:
    """Return the columns of `SUMS` for every row, float64 (sums, n)."""
    phi, predicted = rows.disagreement, rows.predicted
    epistemic = rows.squared_gap - rows.correction
    columns = []
    for omega in (weight, weight * rows.n_ratings):
        columns += [omega, omega * predicted, omega * phi, omega * predicted**2]
        columns += [omega * predicted * phi]
        columns += [omega**2, omega**2 * phi, omega**2 * phi**2, omega * epistemic]
    return np.stack(columns)


def _fill(block: Block, place: NDArray[np.int64], columns: Floats) -> None:
    block.counts[0] += np.bincount(place, minlength=block.size)
    for i, column in enumerate(columns):
        block.sums[i] += np.bincount(place, column, block.size)


ACCUMULATOR = Disagreement
