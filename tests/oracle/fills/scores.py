"""numpy fill of the accumulator `scores`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.scores import ScoreSums
from calibrant.core.arrays import Floats, over_classes
from calibrant.core.label_policies import N_POLICIES
from tests.oracle.batch_sums import FillSums


class Filled(ScoreSums):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
        if not batch_sums.n:
            return
        block = self.blocks["scores"]
        counts, sums = batch_sums.row_scores
        block.counts[:] += counts.sum(axis=2).astype(np.int64)
        block.sums[:5] += sums.sum(axis=2)
        block.sums[5:] += _null_sums(batch_sums)


def _null_sums(batch_sums: FillSums) -> Floats:
    """Return mean and variance of the Brier and accuracy sums if labels were drawn from the predictions; (4, 4)."""
    p2, p3 = (
        batch_sums.squares,
        over_classes(batch_sums.columns * batch_sums.columns * batch_sums.columns),
    )
    top = batch_sums.confidence
    result = np.empty((4, N_POLICIES))
    for policy in range(N_POLICIES):
        weight = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
        dependent = batch_sums.unit_size * weight**2
        result[:, policy] = (
            weight @ (1.0 - p2),
            dependent @ np.maximum(4.0 * (p3 - p2**2), 0.0),
            weight @ top,
            dependent @ (top * (1.0 - top)),
        )
    return result
