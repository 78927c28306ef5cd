"""Replicates: sums of 64 disjoint parts of the units, chosen by hash, to resample intervals without raw rows.

Each stores a 60-bin table of the score (class 1 of binary models, else the top class), a 15-bin table per class for models of
at most 20 classes, and the score sums. Together they are all of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import (
    HITS,
    LOGIT_SPAN,
    MASS,
    SQUARED_MASS,
    BlockColumns,
    Range,
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
TABLE_RANGES = {
    "weight_pooled": MASS,
    "weight": weight_of("predictions"),
    "confidence_pooled": in_cell("weight_pooled"),
    "confidence": in_cell("weight"),
    **HITS,
}
TABLE_SUMS = tuple(TABLE_RANGES)
SCORE_RANGES = {
    "weight": MASS,
    "weight_finite": within("weight"),
    "brier": within("weight", 0, 2),
    "nll": within("weight_finite", 0, LOGIT_SPAN),
    "correct": within("weight"),
}
SCORE_SUMS = tuple(SCORE_RANGES)
COUNTS = ("predictions",)
TOTALS = {"predictions": "n_labelled"}
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

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        n_classes = spec.n_classes
        found = {
            "tables": columns_of_tables(1, SCORE_BINS, N_REPLICATES),
            "scores": _columns_of_policies(SCORE_RANGES),
            "score_nulls": _columns_of_policies(dict.fromkeys(NULL_SUMS, MASS)),
            "unit_products": _columns_of_products(1, SCORE_BINS),
        }
        if keeps_class_tables(spec):
            found["classes"] = columns_of_tables(n_classes, CLASS_BINS, N_REPLICATES)
            found["class_unit_products"] = _columns_of_products(n_classes, CLASS_BINS)
        return found


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


def _columns_of_products(tables: int, bins: int) -> BlockColumns:
    size = tables * n_pairs(bins)
    return BlockColumns(PRODUCT_COUNTS, PRODUCT_RANGES, size, totals=TOTALS, times=tables)


def _columns_of_policies(ranges: Mapping[str, Range]) -> BlockColumns:
    size = N_REPLICATES * N_POLICIES
    return BlockColumns(COUNTS, ranges, size, totals=TOTALS, times=N_POLICIES)


def columns_of_tables(tables: int, bins: int, parts: int = 1) -> BlockColumns:
    """Return the columns of tables with the sums of `TABLE_SUMS`, each with every labelled prediction, which may be in parts."""
    size = parts * tables * bins
    return BlockColumns(COUNTS, TABLE_RANGES, size, totals=TOTALS, times=tables, edges=bins)


ACCUMULATOR = Replicates
