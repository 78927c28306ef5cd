"""Predictions against their label distributions: sums by replicate, and histograms of the entropy gap and the distance.

Each prediction counts once, whatever its number of ratings. Rater disagreement uses only predictions with two ratings or more.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import Ranges, weight_of, within
from calibrant.core.batch_sums import N_REPLICATES, BatchSums
from calibrant.core.edge_rules import derived_rules
from calibrant.core.grid import derived_bin, equal_width_bin
from calibrant.raters.label_distribution import Comparisons, compare

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
_CHUNK = 1 << 17


class LabelDistributions(Accumulator):
    """Block `sums`, one cell per replicate; histograms `entropy_gap` and `distance`.

    The former covers [-1, 1], the gap divided by the logarithm of the number of classes; the latter covers [0, 1].
    """

    name = "label_distribution"

    def zero(self) -> dict[str, Block]:
        of_two = COUNTS.index("with_two_ratings")
        depends_on = tuple(
            of_two if name in ("weight_of_two", "disagreement") else 0 for name in SUMS
        )
        return {
            "sums": Block(len(COUNTS), len(SUMS), N_REPLICATES, depends_on),
            "entropy_gap": Block(1, 1, HISTOGRAM_BINS),
            "distance": Block(1, 1, HISTOGRAM_BINS),
        }

    def ranges(self) -> dict[str, Ranges]:
        most = float(np.log(self.spec.n_classes))
        gaps = {
            "entropy_gap": within("weight", -most, most),
            "entropy_gap_absolute": within("weight", 0, most),
        }
        few = {name: within("predictions") for name in COUNTS[1:]}
        totals = {"predictions": "n_labelled", "with_two_ratings": "several"}
        histogram = Ranges(
            COUNTS[:1],
            ("weight",),
            {"weight": RANGES["weight"]},
            totals={"predictions": "n_labelled"},
        )
        sums = Ranges(COUNTS, SUMS, RANGES | gaps, few, totals)
        return {"sums": sums, "entropy_gap": histogram, "distance": histogram}

    def fill(self, batch_sums: BatchSums) -> None:
        rows = max(256, _CHUNK // self.spec.n_classes)
        for start in range(0, batch_sums.n, rows):
            part = slice(start, min(start + rows, batch_sums.n))
            self._add(batch_sums, part, compare_rows(batch_sums, part))

    def _add(self, batch_sums: BatchSums, part: slice, found: Comparisons) -> None:
        place, weight = batch_sums.replicate[part], batch_sums.weights[part]
        two = np.isfinite(found.disagreement)
        block = self.blocks["sums"]
        for i, chosen in enumerate((np.ones(len(place)), found.untied, two)):
            block.counts[i] += np.bincount(place, chosen, N_REPLICATES).astype(np.int64)
        columns = (
            np.ones(len(place)),
            found.entropy_gap,
            np.abs(found.entropy_gap),
            found.distance,
            found.same_order,
            found.same_strict_order,
            found.untied,
            two,
            np.where(two, found.disagreement, 0.0),
        )
        for i, values in enumerate(columns):
            block.sums[i] += np.bincount(place, weight * values, N_REPLICATES)
        scaled = (found.entropy_gap / np.log(self.spec.n_classes) + 1.0) / 2.0
        places = {
            "entropy_gap": derived_bin(scaled, HISTOGRAM_BINS),
            "distance": equal_width_bin(
                np.clip(found.distance, 0.0, 1.0),
                HISTOGRAM_BINS,
                rules=derived_rules(batch_sums.batch.edge_rules),
            ),
        }
        for name, bins in places.items():
            self.blocks[name].counts[0] += np.bincount(bins, minlength=HISTOGRAM_BINS)
            self.blocks[name].sums[0] += np.bincount(bins, weight, HISTOGRAM_BINS)


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
