"""Sums of the proper scores and of accuracy by label policy, with their expectation for a perfectly calibrated model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import LOGIT_SPAN, Ranges, variance_of, weight_of, within
from calibrant.core.batch_sums import BatchSums
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.summing import over_classes

COUNTS = ("samples", "predictions", "n_zero_probability")
SUMS = (
    "weight",
    "weight_finite",
    "brier",
    "nll",
    "correct",
    "brier_null",
    "brier_null_variance",
    "accuracy_null",
    "accuracy_null_variance",
)
RANGES = {
    "weight": weight_of("samples"),
    "weight_finite": within("weight"),
    "brier": within("weight", 0, 2),
    "nll": within("weight_finite", 0, LOGIT_SPAN),
    "correct": within("weight"),
    "brier_null": within("weight"),
    "brier_null_variance": variance_of("weight"),
    "accuracy_null": within("weight"),
    "accuracy_null_variance": variance_of("weight"),
}
Floats = NDArray[np.float64]


class ScoreSums(Accumulator):
    """One column per policy. Ratings of a class at probability 0 are excluded from `nll` and `weight_finite`, and are counted."""

    name = "scores"

    def zero(self) -> dict[str, Block]:
        return {"scores": Block(len(COUNTS), len(SUMS), N_POLICIES)}

    def ranges(self) -> dict[str, Ranges]:
        few = {"predictions": within("samples")}
        return {
            "scores": Ranges(COUNTS, SUMS, RANGES, few, {"predictions": "n_labelled"}, each=True)
        }

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.n:
            return
        block = self.blocks["scores"]
        counts, sums = batch_sums.row_scores
        block.counts[:] += counts.sum(axis=2).astype(np.int64)
        block.sums[:5] += sums.sum(axis=2)
        block.sums[5:] += _null_sums(batch_sums)


def _null_sums(batch_sums: BatchSums) -> Floats:
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


ACCUMULATOR = ScoreSums
