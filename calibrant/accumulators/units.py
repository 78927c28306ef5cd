"""Sums in which every independent unit has weight one, by 60 bins of the score, for comparisons and the alarm.

Pixels, raters' ratings and repeated images of one patient are not independent. Each of a unit's n_u contributions to a batch has
weight 1 / n_u. Under `pooled` the contributions are ratings. A unit must be complete in one batch of a pane. A unit that reappears
counts as new, and `unit_sample` estimates how many did.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import HITS, BlockColumns, in_cell, within
from calibrant.core.spec import PaneSpec

UNIT_BINS = 60
COUNTS = ("predictions", "labelled")
RANGES = {
    "occupancy": within("predictions"),
    "weight": within("labelled"),
    "confidence": in_cell("weight"),
    **{name: HITS[name] for name in ("correct_mean", "correct_majority", "correct_single")},
    "weight_squared": within("weight"),
    "weight_pooled": within("labelled"),
    "confidence_pooled": in_cell("weight_pooled"),
    "correct_pooled": HITS["correct_pooled"],
    "weight_squared_pooled": within("weight_pooled"),
}
SUMS = tuple(RANGES)
DEPENDS_ON = (0,) + (1,) * (len(SUMS) - 1)


class UnitSums(Accumulator):
    """Sixty bins of the score. `occupancy` includes unlabelled predictions."""

    name = "units"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        totals = {"predictions": "n_predictions", "labelled": "n_labelled"}
        few, bins = {"labelled": within("predictions")}, UNIT_BINS
        own = BlockColumns(COUNTS, RANGES, bins, few, totals, edges=bins, depends_on=DEPENDS_ON)
        return {"bins": own}


ACCUMULATOR = UnitSums
