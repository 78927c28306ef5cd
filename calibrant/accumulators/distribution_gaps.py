"""Predictions against their label distributions: sums by replicate, and histograms of the entropy gap and the distance.

Each prediction counts once, whatever its number of ratings. Rater disagreement uses only predictions with two ratings or more.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import BlockColumns, weight_of, within
from calibrant.core.batch_sums import N_REPLICATES, BatchSums
from calibrant.core.spec import PaneSpec
from calibrant.raters.label_comparison import Comparisons, compare

COUNTS = ("predictions", "untied", "with_two_ratings")
SUMS = (
    "weight",
    "entropy_gap",
    "entropy_gap_absolute",
    "distance",
    "same_order",
    "same_strict_order",
    "untied",
    "weight_of_two",
    "disagreement",
)
RANGES = {
    "weight": weight_of("predictions"),
    **{name: within("weight") for name in SUMS[3:8]},
    "disagreement": within("weight_of_two"),
}
HISTOGRAM_BINS = 200


class LabelDistributions(Accumulator):
    """Block `sums`, one cell per replicate; histograms `entropy_gap` and `distance`.

    The former covers [-1, 1], the gap divided by the logarithm of the number of classes; the latter covers [0, 1].
    """

    name = "label_distribution"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        of_two, most = COUNTS.index("with_two_ratings"), float(np.log(spec.n_classes))
        depends_on = tuple(
            of_two if name in ("weight_of_two", "disagreement") else 0 for name in SUMS
        )
        gaps = {
            "entropy_gap": within("weight", -most, most),
            "entropy_gap_absolute": within("weight", 0, most),
        }
        ranges = {name: (RANGES | gaps)[name] for name in SUMS}
        few = {name: within("predictions") for name in COUNTS[1:]}
        all_rows = {"predictions": "n_labelled"}
        totals = all_rows | {"with_two_ratings": "several"}
        weight = {"weight": RANGES["weight"]}
        histogram = BlockColumns(COUNTS[:1], weight, HISTOGRAM_BINS, totals=all_rows)
        sums = BlockColumns(COUNTS, ranges, N_REPLICATES, few, totals, depends_on=depends_on)
        return {"sums": sums, "entropy_gap": histogram, "distance": histogram}


def compare_rows(batch_sums: BatchSums, part: slice) -> Comparisons:
    """Compare some labelled rows with their ratings."""
    ratings = batch_sums.batch.ratings
    first, last = np.searchsorted(ratings.row, [part.start, part.stop])
    counts = np.zeros((batch_sums.batch.n_classes, part.stop - part.start), np.int64)
    counts[ratings.class_index[first:last], ratings.row[first:last] - part.start] = ratings.count[
        first:last
    ]
    return compare(batch_sums.columns[:, part].T, counts.T, batch_sums.entropy[part])


ACCUMULATOR = LabelDistributions
