"""numpy fill of the accumulator `counts`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.counts import Counts
from calibrant.core.batch_sums import BatchSums


class Filled(Counts):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        batch = batch_sums.batch
        tied = batch.majority[1] if batch_sums.n else np.zeros(0, bool)
        self.blocks["counts"].counts[:, 0] += [
            batch_sums.complete_batch.n,
            batch_sums.n,
            int(batch_sums.n_ratings.sum()),
            batch_sums.n_units,
            int(tied.sum()),
            batch_sums.n if batch.unit_source == "row" else 0,
            int((batch_sums.n_ratings == 1).sum()),
        ]
        self.blocks["counts"].sums[0, 0] += float(batch_sums.weights.sum())
