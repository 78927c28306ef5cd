"""Sums for the squared loss and its parts under label uncertainty, by replicate and by one rating or several.

Rows with one rating carry no information on the variation of a label distribution. They are separate, so that estimates that need
a second rating can leave them out. Every sum is stored for weight one per prediction and, with the suffix `_by_ratings`, for
weight n_i.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import MAX_COUNT, Ranges, weight_of, within
from calibrant.core.batch_sums import N_REPLICATES

COUNTS = ("predictions", "ratings")
MOMENTS = ("weight", "squared_gap", "spread", "correction", "disagreement_loss")
SUMS = MOMENTS + tuple(f"{name}_by_ratings" for name in MOMENTS)
_MOST = {"squared_gap": 2.0, "spread": 2.0, "correction": 1.0, "disagreement_loss": 1.0}
RANGES = {
    "weight": weight_of("predictions"),
    "weight_by_ratings": weight_of("ratings"),
    **{
        f"{name}{suffix}": within("weight" + suffix, 0, most)
        for name, most in _MOST.items()
        for suffix in ("", "_by_ratings")
    },
}
ONE_RATING, SEVERAL = 0, 1


class LabelUncertainty(Accumulator):
    """Block `sums` (64 replicates x one rating or several), flat in that order; columns as in `label_rows.LabelRows`."""

    name = "label_uncertainty"

    def zero(self) -> dict[str, Block]:
        return {"sums": Block(len(COUNTS), len(SUMS), 2 * N_REPLICATES)}

    def ranges(self) -> dict[str, Ranges]:
        totals = {"predictions": "n_labelled", "ratings": "n_ratings"}
        return {
            "sums": Ranges(
                COUNTS, SUMS, RANGES, {"ratings": within("predictions", 1, MAX_COUNT)}, totals
            )
        }


ACCUMULATOR = LabelUncertainty
