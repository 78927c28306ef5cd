"""Replicates: sums of 64 disjoint parts of the units, chosen by hash, to resample intervals without raw rows.

Each stores a 60-bin table of the score (class 1 of binary models, else the top class), a 15-bin table per class for models of
at most 20 classes, and the score sums. Together they are all of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import (
    HITS,
    LOGIT_SPAN,
    MASS,
    SQUARED_MASS,
    Ranges,
    bin_edges,
    in_cell,
    weight_of,
    within,
)
from calibrant.core.batch_sums import N_REPLICATES, BatchSums, CorrectRatings
from calibrant.core.distinct import distinct
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
NULL_SUMS = ("brier_null", "accuracy_null")
PRODUCT_COUNTS = ("units", "predictions")
PRODUCT_SUMS = ("product_pooled", "product")
PRODUCT_RANGES = dict.fromkeys(PRODUCT_SUMS, SQUARED_MASS)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def keeps_class_tables(spec: PaneSpec) -> bool:
    return spec.n_classes <= MAX_CLASSES and spec.keeps_all_classes


class Replicates(Accumulator):
    """Blocks `tables` (64 x 60), `classes` (64 x classes x 15) and `scores` (64 x policies), flat in that order.

    Format 2 added `score_nulls` (64 x policies): the expectation of Brier score and accuracy for labels drawn from the predictions.
    It also added `unit_products` (`n_pairs(60)`) and `class_unit_products` (classes x `n_pairs(15)`), which belong to no replicate. For every
    pair of bins they count the units with a prediction in both and sum the product of each unit's weights there. The sum of the
    squared weights of units in any union of bins follows exactly. `predictions` are counted for each bin with itself.
    """

    name = "replicates"
    format = 2
    later_blocks: ClassVar[Mapping[str, int]] = {
        "score_nulls": 2,
        "unit_products": 2,
        "class_unit_products": 2,
    }

    def zero(self) -> dict[str, Block]:
        blocks = {
            "tables": Block(1, len(TABLE_SUMS), N_REPLICATES * SCORE_BINS),
            "scores": Block(1, len(SCORE_SUMS), N_REPLICATES * N_POLICIES),
            "score_nulls": Block(1, len(NULL_SUMS), N_REPLICATES * N_POLICIES),
            "unit_products": Block(len(PRODUCT_COUNTS), len(PRODUCT_SUMS), n_pairs(SCORE_BINS)),
        }
        if keeps_class_tables(self.spec):
            n_classes = self.spec.n_classes
            blocks |= {
                "classes": Block(1, len(TABLE_SUMS), N_REPLICATES * n_classes * CLASS_BINS),
                "class_unit_products": Block(
                    len(PRODUCT_COUNTS), len(PRODUCT_SUMS), n_classes * n_pairs(CLASS_BINS)
                ),
            }
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
            "score_nulls": Ranges(
                ("predictions",),
                NULL_SUMS,
                dict.fromkeys(NULL_SUMS, MASS),
                totals={"predictions": "n_labelled"},
                times=N_POLICIES,
            ),
            "unit_products": _ranges_of_products(1),
            "class_unit_products": _ranges_of_products(self.spec.n_classes),
        }
        return {name: found[name] for name in self.blocks}

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.n:
            return
        rules = batch_sums.batch.edge_rules
        bins = equal_width_bin(batch_sums.score, SCORE_BINS, rules=rules)
        place = batch_sums.replicate * SCORE_BINS + bins
        correct_ratings = batch_sums.score_correct
        fill_table(
            self.blocks["tables"],
            batch_sums,
            place,
            batch_sums.score,
            correct_ratings,
            place[correct_ratings.row],
        )
        if "unit_products" in self.blocks:
            _add_products(
                self.blocks["unit_products"], batch_sums, place % SCORE_BINS, SCORE_BINS, 0
            )
        if "classes" in self.blocks:
            self._fill_classes(batch_sums)
        self._fill_scores(batch_sums)

    def _fill_classes(self, batch_sums: BatchSums) -> None:
        n_classes, bins = self.spec.n_classes, self._class_bins(batch_sums)
        if "class_unit_products" in self.blocks:
            for class_index in range(n_classes):
                start = class_index * n_pairs(CLASS_BINS)
                _add_products(
                    self.blocks["class_unit_products"],
                    batch_sums,
                    bins[class_index],
                    CLASS_BINS,
                    start,
                )
        first = (batch_sums.replicate * n_classes + np.arange(n_classes)[:, None]) * CLASS_BINS
        place = first + bins
        correct_ratings = batch_sums.correct_ratings
        correct_place = place[correct_ratings.class_index, correct_ratings.row]
        fill_table(
            self.blocks["classes"],
            batch_sums,
            place.ravel(),
            batch_sums.columns.ravel(),
            correct_ratings,
            correct_place,
        )

    def _class_bins(self, batch_sums: BatchSums) -> Ints:
        """Return the bin of every class's probability, from the finer grid where it has these bins."""
        fine = self.spec.class_grid
        if fine.cells % CLASS_BINS:
            return equal_width_bin(
                batch_sums.columns, CLASS_BINS, rules=batch_sums.batch.edge_rules
            )
        return np.take(fine.bins(CLASS_BINS), batch_sums.places(fine))

    def _fill_scores(self, batch_sums: BatchSums) -> None:
        sums = batch_sums.row_scores[1]
        block = self.blocks["scores"]
        for policy in range(N_POLICIES):
            place = batch_sums.replicate * N_POLICIES + policy
            block.counts[0] += np.bincount(place, minlength=block.size)
            for i in range(len(SCORE_SUMS)):
                block.sums[i] += np.bincount(place, sums[i, policy], block.size)
        if "score_nulls" in self.blocks:
            self._fill_nulls(batch_sums)

    def _fill_nulls(self, batch_sums: BatchSums) -> None:
        block, per_row = (
            self.blocks["score_nulls"],
            (1.0 - batch_sums.squares, batch_sums.confidence),
        )
        for policy in range(N_POLICIES):
            place = batch_sums.replicate * N_POLICIES + policy
            weight = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
            block.counts[0] += np.bincount(place, minlength=block.size)
            for column, values in zip(block.sums, per_row, strict=True):
                column += np.bincount(place, weight * values, block.size)


def n_pairs(bins: int) -> int:
    """Return the number of pairs of bins, each bin with itself included.

    Examples
    --------
    >>> n_pairs(3)
    6
    """
    return bins * (bins + 1) // 2


def pair_places(first: Ints, second: Ints, bins: int) -> Ints:
    """Return the place of pairs of bins, the first of each not above the second.

    Examples
    --------
    >>> pair_places(np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2]), 3).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    return first * bins - first * (first - 1) // 2 + second - first


def _add_products(block: Block, batch_sums: BatchSums, at: Ints, bins: int, start: int) -> None:
    """Add the products of each unit's weights in every pair of bins.

    Parameters
    ----------
    at : int64 (n,), bin of each row
    start : place of the table's first pair
    """
    weights = batch_sums.weights
    columns = (weights * batch_sums.n_ratings, weights)
    place = start + pair_places(at, at, bins)
    predictions = np.bincount(place, minlength=block.size)
    block.counts[1] += predictions
    if not batch_sums.has_units:
        block.counts[0] += predictions
        for sums, weight in zip(block.sums, columns, strict=True):
            sums += np.bincount(place, weight**2, block.size)
        return
    cell, index = distinct(batch_sums.unit_index * bins + at, batch_sums.n_units * bins)
    unit, place = np.divmod(cell, bins)
    of_cell = [np.bincount(index, weight).astype(np.float64) for weight in columns]
    # Cells of a unit are adjacent, so that all pairs of its cells are found by their distance.
    for distance in range(min(bins, len(cell))):
        first = np.flatnonzero(unit[: len(unit) - distance] == unit[distance:])
        if not len(first):
            return
        pair = start + pair_places(place[first], place[first + distance], bins)
        block.counts[0] += np.bincount(pair, minlength=block.size)
        for sums, weight in zip(block.sums, of_cell, strict=True):
            sums += np.bincount(pair, weight[first] * weight[first + distance], block.size)


def _ranges_of_products(tables: int) -> Ranges:
    totals = {"predictions": "n_labelled"}
    return Ranges(PRODUCT_COUNTS, PRODUCT_SUMS, PRODUCT_RANGES, totals=totals, times=tables)


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
    block: Block,
    batch_sums: BatchSums,
    place: Ints,
    score: Floats,
    correct_ratings: CorrectRatings,
    correct_place: Ints,
) -> None:
    """Add (prediction, class) pairs to a table with the columns of `TABLE_SUMS`: `cells.fill_cells` with fewer sums."""
    size = block.size
    n = np.bincount(place, minlength=size)
    block.counts[0] += n
    constant = batch_sums.constant_ratings
    if constant is not None:
        confidence = np.bincount(place, score, size)
        block.sums[:4] += np.stack([constant * n, n, constant * confidence, confidence])
    else:
        weight = np.resize(batch_sums.weights, len(place))
        pooled = np.resize(batch_sums.weights * batch_sums.n_ratings, len(place))
        for i, values in enumerate((pooled, weight, pooled * score, weight * score)):
            block.sums[i] += np.bincount(place, values, size)
    of_correct = batch_sums.weights[correct_ratings.row]
    shares: tuple[NDArray[Any], ...] = (
        correct_ratings.ratings,
        correct_ratings.share,
        correct_ratings.majority,
        correct_ratings.single,
    )
    for i, share in enumerate(shares):
        block.sums[4 + i] += np.bincount(correct_place, of_correct * share, size)


ACCUMULATOR = Replicates
