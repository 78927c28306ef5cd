"""Sums in which every independent unit has weight one, by 60 bins of the score, for comparisons and the alarm.

Pixels, raters' ratings and repeated images of one patient are not independent. Each of a unit's n_u contributions to a batch has
weight 1 / n_u. Under `pooled` the contributions are ratings. A unit must be complete in one batch of a pane. A unit that reappears
counts as new, and `unit_sample` estimates how many did.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import HITS, Ranges, bin_edges, in_cell, within

UNIT_BINS = 60
COUNTS = ("predictions", "labelled")
SUMS = (
    "occupancy",
    "weight",
    "confidence",
    "correct_mean",
    "correct_majority",
    "correct_single",
    "weight_squared",
    "weight_pooled",
    "confidence_pooled",
    "correct_pooled",
    "weight_squared_pooled",
)
RANGES = {
    "occupancy": within("predictions"),
    **{name: within("labelled") for name in ("weight", "weight_pooled")},
    **{
        name: in_cell(name.replace("confidence", "weight"))
        for name in ("confidence", "confidence_pooled")
    },
    **HITS,
    **{
        name: within(name.replace("_squared", ""))
        for name in ("weight_squared", "weight_squared_pooled")
    },
}
DEPENDS_ON = (0,) + (1,) * (len(SUMS) - 1)


class UnitSums(Accumulator):
    """Sixty bins of the score. `occupancy` includes unlabelled predictions."""

    name = "units"

    def zero(self) -> dict[str, Block]:
        return {"bins": Block(len(COUNTS), len(SUMS), UNIT_BINS, DEPENDS_ON)}

    def ranges(self) -> dict[str, Ranges]:
        totals = {"predictions": "n_predictions", "labelled": "n_labelled"}
        few = {"labelled": within("predictions")}
        return {"bins": Ranges(COUNTS, SUMS, RANGES, few, totals, edges=bin_edges(UNIT_BINS))}


ACCUMULATOR = UnitSums
