"""Sums for the squared loss and its parts under label uncertainty, by replicate and by one rating or several.

Rows with one rating carry no information on the variation of a label distribution. They are separate, so that estimates that need
a second rating can leave them out. Every sum is stored for weight one per prediction and, with the suffix `_by_ratings`, for
weight n_i.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import MAX_COUNT, BlockColumns, Range, weight_of, within
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.spec import PaneSpec

COUNTS = ("predictions", "ratings")
_MOST = {"squared_gap": 2.0, "spread": 2.0, "correction": 1.0, "disagreement_loss": 1.0}
MOMENTS = ("weight", *_MOST)


def _ranges(suffix: str, count: str) -> dict[str, Range]:
    weight = f"weight{suffix}"
    losses = {f"{name}{suffix}": within(weight, 0, most) for name, most in _MOST.items()}
    return {weight: weight_of(count), **losses}


RANGES = _ranges("", "predictions") | _ranges("_by_ratings", "ratings")
SUMS = tuple(RANGES)
ONE_RATING, SEVERAL = 0, 1


class LabelUncertainty(Accumulator):
    """Block `sums` (64 replicates x one rating or several), flat in that order; columns as in `label_rows.LabelRows`."""

    name = "label_uncertainty"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        totals = {"predictions": "n_labelled", "ratings": "n_ratings"}
        few = {"ratings": within("predictions", 1, MAX_COUNT)}
        return {"sums": BlockColumns(COUNTS, RANGES, 2 * N_REPLICATES, few, totals)}


ACCUMULATOR = LabelUncertainty
