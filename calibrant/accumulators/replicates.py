"""Sixty-four independent parts of the data, by hash of the unit, for intervals without raw rows.

Each stores a 60-bin table of the score (class 1 of binary models, else the top class), a 15-bin table per class for models of
at most 20 classes, and the score sums. Together they are all of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import (
    HITS,
    LOGIT_SPAN,
    MASS,
    Ranges,
    bin_edges,
    in_cell,
    weight_of,
    within,
)
from calibrant.core.batch_sums import N_REPLICATES, Filling, Hits
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.spec import PaneSpec

SCORE_BINS = 60
CLASS_BINS = 15
MAX_CLASSES = 20
TABLE_SUMS = (
    "weight_pooled",
    "weight",
    "confidence_pooled",
    "confidence",
    "correct_pooled",
    "correct_mean",
    "correct_majority",
    "correct_single",
)
TABLE_RANGES = {
    "weight_pooled": MASS,
    "weight": weight_of("predictions"),
    "confidence_pooled": in_cell("weight_pooled"),
    "confidence": in_cell("weight"),
    **HITS,
}
SCORE_SUMS = ("weight", "weight_finite", "brier", "nll", "correct")
SCORE_RANGES = {
    "weight": MASS,
    "weight_finite": within("weight"),
    "brier": within("weight", 0, 2),
    "nll": within("weight_finite", 0, LOGIT_SPAN),
    "correct": within("weight"),
}
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def keeps_class_tables(spec: PaneSpec) -> bool:
    return spec.n_classes <= MAX_CLASSES and spec.keeps_all_classes


class Replicates(Accumulator):
    """Blocks `tables` (64 x 60), `classes` (64 x classes x 15) and `scores` (64 x policies), flat in that order."""

    name = "replicates"

    def zero(self) -> dict[str, Block]:
        blocks = {
            "tables": Block(1, len(TABLE_SUMS), N_REPLICATES * SCORE_BINS),
            "scores": Block(1, len(SCORE_SUMS), N_REPLICATES * N_POLICIES),
        }
        if keeps_class_tables(self.spec):
            blocks["classes"] = Block(
                1, len(TABLE_SUMS), N_REPLICATES * self.spec.n_classes * CLASS_BINS
            )
        return blocks

    def ranges(self) -> dict[str, Ranges]:
        found = {
            "tables": ranges_of_table(1, SCORE_BINS),
            "classes": ranges_of_table(self.spec.n_classes, CLASS_BINS),
            "scores": Ranges(
                ("predictions",),
                SCORE_SUMS,
                SCORE_RANGES,
                totals={"predictions": "n_labelled"},
                times=N_POLICIES,
            ),
        }
        return {name: found[name] for name in self.blocks}

    def fill(self, filling: Filling) -> None:
        if not filling.n:
            return
        place = filling.replicate * SCORE_BINS + equal_width_bin(filling.score, SCORE_BINS)
        hits = filling.score_hits
        fill_table(self.blocks["tables"], filling, place, filling.score, hits, place[hits.row])
        if "classes" in self.blocks:
            self._fill_classes(filling)
        self._fill_scores(filling)

    def _fill_classes(self, filling: Filling) -> None:
        n_classes = self.spec.n_classes
        start = (filling.replicate * n_classes + np.arange(n_classes)[:, None]) * CLASS_BINS
        place = start + self._class_bins(filling)
        hits = filling.hits
        hit_place = place[hits.klass, hits.row]
        fill_table(
            self.blocks["classes"], filling, place.ravel(), filling.columns.ravel(), hits, hit_place
        )

    def _class_bins(self, filling: Filling) -> Ints:
        """Return the bin of every class's probability, from the finer grid where it has these bins."""
        fine = self.spec.class_grid
        if fine.cells % CLASS_BINS:
            return equal_width_bin(filling.columns, CLASS_BINS)
        return np.take(fine.bins(CLASS_BINS), filling.places(fine))

    def _fill_scores(self, filling: Filling) -> None:
        sums = filling.row_scores[1]
        block = self.blocks["scores"]
        for policy in range(N_POLICIES):
            place = filling.replicate * N_POLICIES + policy
            block.counts[0] += np.bincount(place, minlength=block.size)
            for i in range(len(SCORE_SUMS)):
                block.sums[i] += np.bincount(place, sums[i, policy], block.size)


def ranges_of_table(tables: int, bins: int) -> Ranges:
    """Ranges of tables with the columns of `TABLE_SUMS`, each with every labelled prediction."""
    totals = {"predictions": "n_labelled"}
    return Ranges(
        ("predictions",),
        TABLE_SUMS,
        TABLE_RANGES,
        totals=totals,
        times=tables,
        edges=bin_edges(bins),
    )


def fill_table(
    block: Block, filling: Filling, place: Ints, score: Floats, hits: Hits, hit_place: Ints
) -> None:
    """Add (prediction, class) pairs to a table with the columns of `TABLE_SUMS`: `cells.fill_cells` with fewer sums."""
    size = block.size
    n = np.bincount(place, minlength=size)
    block.counts[0] += n
    constant = filling.constant_ratings
    if constant is not None:
        confidence = np.bincount(place, score, size)
        block.sums[:4] += np.stack([constant * n, n, constant * confidence, confidence])
    else:
        weight = np.resize(filling.weights, len(place))
        pooled = np.resize(filling.weights * filling.n_ratings, len(place))
        for i, values in enumerate((pooled, weight, pooled * score, weight * score)):
            block.sums[i] += np.bincount(place, values, size)
    of_hit = filling.weights[hits.row]
    shares: tuple[NDArray[Any], ...] = (hits.votes, hits.share, hits.majority, hits.single)
    for i, share in enumerate(shares):
        block.sums[4 + i] += np.bincount(hit_place, of_hit * share, size)


ACCUMULATOR = Replicates
