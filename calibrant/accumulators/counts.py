"""Numbers of predictions, labelled predictions, ratings, units, and special cases among them."""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import MAX_COUNT, BlockColumns, weight_of, within
from calibrant.core.spec import PaneSpec

COUNTS = (
    "n_predictions",
    "n_labelled",
    "n_ratings",
    "n_units",
    "n_majority_ties",
    "n_unit_from_row",
    "n_one_rating",
)
RANGES = {"weight": weight_of("n_labelled")}
RANGES_OF_COUNTS = {
    "n_labelled": within("n_predictions"),
    "n_ratings": within("n_labelled", 1, MAX_COUNT),
    **{name: within("n_labelled") for name in COUNTS[3:]},
}


class Counts(Accumulator):
    """One row of plain counts, and the sum of the labelled predictions' weights."""

    name = "counts"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        depends_on = (COUNTS.index("n_labelled"),)
        return {"counts": BlockColumns(COUNTS, RANGES, 1, RANGES_OF_COUNTS, depends_on=depends_on)}

    def named(self) -> dict[str, int]:
        """Return each count by its name."""
        return dict(zip(COUNTS, self.blocks["counts"].counts[:, 0].tolist(), strict=True))

    @property
    def weight(self) -> float:
        return float(self.blocks["counts"].sums[0, 0])


ACCUMULATOR = Counts
