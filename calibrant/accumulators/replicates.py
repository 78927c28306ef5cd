"""Replicates: sums of 64 disjoint parts of the units, chosen by hash, to resample intervals without raw rows.

Each stores a 60-bin table of the score (class 1 of binary models, else the top class), a 15-bin table per class for models of
at most 20 classes, and the score sums. Together they are all of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from calibrant.accumulators.accumulator import Accumulator
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
from calibrant.core.arrays import Ints
from calibrant.core.batch_sums import N_REPLICATES
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
    >>> import numpy as np
    >>> pair_places(np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2]), 3).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    return first * bins - first * (first - 1) // 2 + second - first


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


ACCUMULATOR = Replicates
