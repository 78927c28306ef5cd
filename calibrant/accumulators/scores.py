"""Sums of the proper scores and of accuracy by label policy, with their expectation for a perfectly calibrated model."""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import LOGIT_SPAN, BlockColumns, variance_of, weight_of, within
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.spec import PaneSpec

COUNTS = ("samples", "predictions", "n_zero_probability")
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
SUMS = tuple(RANGES)


class ScoreSums(Accumulator):
    """One column per policy. Ratings of a class at probability 0 are excluded from `nll` and `weight_finite`, and are counted."""

    name = "scores"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        few, totals = {"predictions": within("samples")}, {"predictions": "n_labelled"}
        return {"scores": BlockColumns(COUNTS, RANGES, N_POLICIES, few, totals, each=True)}


ACCUMULATOR = ScoreSums
