"""numpy fill of the accumulator `disagreement`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.accumulators.rater_pairs import (
    DISAGREEMENT_GRID,
    REPLICATE_BINS,
    REPLICATE_SUMS,
    Disagreement,
)
from calibrant.core.arrays import Floats
from calibrant.core.grid import equal_width_bin
from calibrant.raters.label_rows import LabelRows, label_rows
from tests.oracle.batch_sums import FillSums
from tests.oracle.derived import derived_rules


class Filled(Disagreement):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
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
