"""Sums of ratings and residuals by class and by 60 bins of its probability, for the debiased calibration loss.

The cells already give sums and squares of the shares of ratings for weight one per prediction. This accumulator stores the squares
for weight n_i, the residuals (share minus probability), and the predictions with one rating separately, so that they can be left
out.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import (
    MAX_MASS,
    SQUARED_MASS,
    BlockColumns,
    Range,
    square_of,
    weight_of,
    within,
)
from calibrant.core.grid import Grid
from calibrant.core.spec import PaneSpec

LABEL_GRID = Grid(60, refinement=1)
COUNTS = ("predictions", "one_vote")
RANGES = {
    "ratings_squared": SQUARED_MASS,  # (w n)^2
    "correct_ratings_squared": within("ratings_squared"),  # (w n)^2 mu
    "correct_squared_ratings_squared": within("correct_ratings_squared"),  # (w n mu)^2
    "residual": Range(-(MAX_MASS**2), MAX_MASS**2),  # w^2 (mu - z)
    "residual_squared": SQUARED_MASS,  # (w (mu - z))^2
    "one_weight": weight_of("one_vote"),
    "one_confidence": within("one_weight"),
    "one_correct": within("one_weight"),
    "one_weight_squared": square_of("one_weight"),
    "one_correct_weight_squared": within("one_weight_squared"),  # w^2 y
}
SUMS = tuple(RANGES)


class LabelBins(Accumulator):
    """One table per class, positions of `LABEL_GRID`, class after class; stored where all classes have cells."""

    name = "label_bins"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.keeps_all_classes

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        totals = {"predictions": "n_labelled", "one_vote": "n_one_rating"}
        few, n_classes = {"one_vote": within("predictions")}, spec.n_classes
        size = n_classes * LABEL_GRID.n_positions
        return {"bins": BlockColumns(COUNTS, RANGES, size, few, totals, n_classes)}


ACCUMULATOR = LabelBins
