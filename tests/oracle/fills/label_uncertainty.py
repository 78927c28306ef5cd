"""numpy fill of the accumulator `label_uncertainty`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.label_uncertainty import MOMENTS, LabelUncertainty
from calibrant.raters.label_rows import label_rows
from tests.oracle.batch_sums import FillSums


class Filled(LabelUncertainty):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
        if not batch_sums.n:
            return
        block, rows = self.blocks["sums"], label_rows(batch_sums)
        place = 2 * batch_sums.replicate + rows.several
        block.counts[0] += np.bincount(place, minlength=block.size)
        block.counts[1] += np.bincount(place, rows.n_ratings, block.size).astype(np.int64)
        columns = (
            np.ones(batch_sums.n),
            rows.squared_gap,
            rows.spread,
            rows.correction,
            rows.disagreement_loss,
        )
        weights = (batch_sums.weights, batch_sums.weights * rows.n_ratings)
        for i, weight in enumerate(weights):
            for j, column in enumerate(columns):
                block.sums[i * len(MOMENTS) + j] += np.bincount(place, weight * column, block.size)
