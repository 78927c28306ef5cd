"""Kinds of values as people have them, each with its stated result: the rows of the table value × entrance.

A result is computed by hand or by the few lines of `ece_of`, which share nothing with the product: the number of labelled
predictions, the number of ratings, and the metric, which is the ECE of 15 bins unless the value names another; or the rule by which it
is refused, or several where a rule depends on what the form of an entrance can hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

P3 = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
P1 = [0.9, 0.2, 0.6, 0.3]
LOGISTIC = [1 / (1 + math.exp(-z)) for z in (2.0, -2.0, 1.0, -1.0)]
# A row of 100 classes rounded to three decimals, whose sum is 1.049: as many classes are rounded up as can be.
MANY = [[0.055] + [0.010] * 98 + [0.014]]
NAN = math.nan


OF_RESULTS = ("task", "bins", "bin_edges")


@dataclass(frozen=True)
class Value:
    """A kind of value.

    Attributes
    ----------
    scores : one number per row, or one per class
    labels : one per row, or one per reader
    expected : labelled predictions, ratings and the metric; or the rule by which it is refused
    options : of the call
    logits : whether scores are logits
    dtype : of the scores, at entrances whose values have one
    states : what the result states in addition
    column : argument that `labels` is; `label_shares` for soft labels, `annotations` for [item, rater, label] per rating
    rows : further arguments with one value per row
    metric : whose value is expected, with its options
    """

    scores: list[Any]
    labels: list[Any]
    expected: tuple[int, int, float] | str
    options: dict[str, Any] = field(default_factory=dict)
    logits: bool = False
    dtype: str = "float64"
    states: dict[str, Any] = field(default_factory=dict)
    column: str = "labels"
    rows: dict[str, list[Any]] = field(default_factory=dict)
    metric: str = "ece"

    @property
    def query(self) -> dict[str, Any]:
        """Options of the results, which are parameters of the query and never fields of a body."""
        return {name: each for name, each in self.options.items() if name in OF_RESULTS}

    @property
    def stated(self) -> dict[str, Any]:
        """Options of the data, which a body may state."""
        return {name: each for name, each in self.options.items() if name not in OF_RESULTS}


def ece_of(confidence: list[float], correct: list[list[int]]) -> float:
    """The ECE of 15 right-closed bins by its definition: `correct` has 1 or 0 for each rating of a row."""
    bins: dict[int, list[tuple[float, int]]] = {}
    for p, hits in zip(confidence, correct, strict=True):
        bins.setdefault(max(math.ceil(p * 15), 1), []).extend((p, hit) for hit in hits)
    gaps = [abs(sum(hit - p for p, hit in some)) for some in bins.values()]
    return sum(gaps) / sum(map(len, bins.values()))


# Shares of the top classes are .5, 1, .75 and 0; two rows are in the bin of .8.
SHARES = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]
SHARED = (0.7 - 0.5 + (1 + 0.75 - 1.6) + 0.4) / 4
EVENTS = [[0.9, 0.8], [0.2, 0.7], [0.6, 0.3]]
MULTILABEL = {"task": "multilabel"}
# The highest class of each row, and whether each rating is it.
TOP = [0.7, 0.8, 0.8, 0.4]
VALUES: dict[str, Value] = {
    # Labels. The missing cells are those of an annotator who skipped items.
    "readers with missing cells": Value(
        P3, [[0, 0], [1, None], [2, 1], [None, 1]], (4, 6, ece_of(TOP, [[1, 1], [1], [1, 0], [0]]))),
    "readers with a row of nothing": Value(
        P3, [[0, 0], [None, None], [2, 1], [None, 1]], (3, 5, ece_of([0.7, 0.8, 0.4], [[1, 1], [1, 0], [0]]))),
    "a missing label": Value(P3, [0, None, 2, 2], (3, 3, ece_of([0.7, 0.8, 0.4], [[1], [1], [1]]))),
    "whole floats with NaN": Value(P1, [1.0, 0.0, NAN, 1.0], (3, 3, ece_of([0.9, 0.2, 0.3], [[1], [0], [1]]))),
    "truth values of two classes": Value(P1, [True, False, True, True], (4, 4, ece_of(P1, [[1], [0], [1], [1]]))),
    "truth values of three classes": Value(P3, [True, False, True, True], "class_index|class"),
    "a fraction as a label": Value(P3, [0.5, 1.0, 2.0, 2.0], "class_index|class"),
    "a class out of range": Value(P3, [0, 1, 2, 3], "class_range"),
    "-100 for no label": Value(
        P3, [0, 1, -100, 2], (3, 3, ece_of([0.7, 0.8, 0.4], [[1], [1], [1]])), {"ignore_label": -100}),
    "255 for no label": Value(P1, [1, 0, 255, 1], (3, 3, ece_of([0.9, 0.2, 0.3], [[1], [0], [1]])), {"ignore_label": 255}),
    "-100 without saying so": Value(P3, [0, 1, -100, 2], "class_range"),
    "names of classes": Value(
        P3, ["cat", "cow", "dog", "cat"], (4, 4, ece_of(TOP, [[1], [1], [1], [0]])), {"classes": ["cat", "cow", "dog"]}),
    "numbers as names": Value(
        P3, [10, 20, 30, 10], (4, 4, ece_of(TOP, [[1], [1], [1], [0]])), {"classes": [10, 20, 30]}),
    "an index among numbers as names": Value(P3, [10, 20, 1, 10], "class_index", {"classes": [10, 20, 30]}),
    "one-hot rows": Value(P3, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], "one_hot"),
    "few one-hot rows": Value(
        P3[:3], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], (3, 9, ece_of(TOP[:3], [[0, 1, 1], [0, 1, 0], [0, 0, 0]])),
        states={"warnings": ["possibly_one_hot"]}),
    "two columns of one-hot": Value(
        P1, [[1, 0], [0, 1], [0, 1], [1, 0]], (4, 8, ece_of(P1, [[1, 0]] * 4)), states={"warnings": ["possibly_one_hot"]}),
    # Scores.
    "log-odds": Value([2.0, -2.0, 1.0, -1.0], [1, 1, 0, 0], (4, 4, ece_of(LOGISTIC, [[1], [1], [0], [0]])), logits=True),
    "log-odds as a column": Value(
        [[2.0], [-2.0], [1.0], [-1.0]], [1, 1, 0, 0], (4, 4, ece_of(LOGISTIC, [[1], [1], [0], [0]])), logits=True),
    "sigmoids as a column": Value([[each] for each in P1], [1, 0, 0, 1], (4, 4, ece_of(P1, [[1], [0], [0], [1]]))),
    "rounding above 1 and below 0": Value(
        [1.0000000000000002, -1e-17, 1.00000536, 0.3], [1, 0, 1, 0], (4, 4, 0.3 / 4), states={"n_adjusted": 3}),
    "a column of two classes above 1": Value([[1.00000536, 0.0], [0.0, 1.0]], [0, 1], (2, 2, 0.0), states={"n_adjusted": 1}),
    "above 1 by more than rounding": Value([1.00002, 0.2], [1, 0], "range"),
    "thirds of two decimals": Value([[0.33, 0.33, 0.33], [0.1, 0.8, 0.1]], [0, 1], (2, 2, (2 / 3 + 0.2) / 2)),
    "a hundred classes of three decimals": Value(MANY, [0], (1, 1, 1 - 0.055 / 1.049), states={"n_normalised": 1}),
    "a sum off by more than rounding": Value([[0.5, 0.3, 0.1], [0.1, 0.8, 0.1]], [0, 1], "row_sum"),
    "weights divided by their sum": Value(
        [[2.0, 1.0, 1.0], [0.1, 0.8, 0.1]], [0, 1], (2, 2, (0.5 + 0.2) / 2), {"normalize": True},
        states={"n_normalised": 1, "largest_deviation": 3.0}),
    "percent": Value([[70.0, 30.0], [20.0, 80.0]], [0, 1], "range"),
    "independent labels": Value([[0.9, 0.8, 0.1], [0.2, 0.7, 0.6]], [0, 1], "row_sum"),
    "float32 on an edge": Value(
        [0.4, 0.4, 0.45, 0.45], [1, 0, 0, 0], (4, 4, (abs(1 - 0.8) + 0.9) / 4), dtype="float32"),
    "float16": Value([0.75, 0.25, 0.5, 0.125], [1, 0, 1, 0], (4, 4, (0.25 + 0.25 + 0.5 + 0.125) / 4), dtype="float16"),
    "float32": Value([0.75, 0.25, 0.5, 0.125], [1, 0, 1, 0], (4, 4, (0.25 + 0.25 + 0.5 + 0.125) / 4), dtype="float32"),
    # Weights, soft labels and independent events.
    "weights of rows": Value(P1, [1, 0, 0, 1], (4, 4, (2 * 0.1 + 0.2 + 0.6 + 0.7) / 5), rows={"weights": [2.0, 1.0, 1.0, 1.0]}),
    "a negative weight": Value(P1, [1, 0, 0, 1], "weight", rows={"weights": [2.0, -1.0, 1.0, 1.0]}),
    "shares of classes": Value(P3, SHARES, (4, 4, SHARED), column="label_shares"),
    "shares of four ratings": Value(P3, SHARES, (4, 16, SHARED), column="label_shares", rows={"n_ratings": [4, 4, 4, 4]}),
    "shares of three ratings": Value(P3, SHARES, "shares", column="label_shares", rows={"n_ratings": [3, 3, 3, 3]}),
    "shares that do not sum to 1": Value(P3, [[0.5, 0.2, 0.1], *SHARES[1:]], "row_sum", column="label_shares"),
    "events": Value(EVENTS, [[1, 1], [0, None], [1, 0]], (3, 5, ((0.1 + 0.2 + 0.4) / 3 + (0.2 + 0.3) / 2) / 2), MULTILABEL),
    "events of a class 2": Value(EVENTS, [[1, 1], [0, 2], [1, 0]], "class_range", MULTILABEL),
    "normalised events": Value(EVENTS, [[1, 1], [0, 1], [1, 0]], "not_taken", MULTILABEL | {"normalize": True}),
    "shares of events": Value(EVENTS, [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]], "not_taken", MULTILABEL, column="label_shares"),
    # Long tables: a rater's last rating of an item counts, and lines of other items do not.
    "annotations": Value(
        P3, [[7, 1, 0], [8, 1, 2], [7, 2, 1], [8, 1, 1], [9, 2, 2], [99, 1, 0], [10, 2, 0]],
        (4, 5, ece_of(TOP, [[1, 0], [1], [1], [0]])), column="annotations", rows={"ids": [7, 8, 9, 10]}),
    "annotations of some items": Value(
        P1, [[7, 1, 1], [9, 1, 0]], (2, 2, ece_of([0.9, 0.6], [[1], [0]])), column="annotations", rows={"ids": [7, 8, 9, 10]}),
    "annotations of a class 3": Value(P3, [[7, 1, 3], [8, 1, 0]], "class_range", column="annotations", rows={"ids": [7, 8, 9, 10]}),
    "annotations of other items": Value(P3, [[77, 1, 0]], "unknown_ids", column="annotations", rows={"ids": [7, 8, 9, 10]}),
    # Names of units and ids: any text of one line, or an integer, whose digits they are.
    "names of people": Value(
        P1, [1, 0, 0, 1], (4, 4, ece_of(P1, [[1], [0], [0], [1]])), states={"n_units": 3},
        rows={"units": ["Müller, A", "Zürich / Nord", "Müller, A", "NA"], "ids": ["img/0001.dcm", "a|b", "Ä 4", "None"]}),
    "integers as names": Value(
        P1, [1, 0, 0, 1], (4, 4, ece_of(P1, [[1], [0], [0], [1]])), states={"n_units": 2}, rows={"units": [1, 2, 1, 1]}),
    "a name with a control character": Value(P1, [1, 0, 0, 1], "name", rows={"units": ["a", "b\x07", "c", "d"]}),
    "a name of 257 characters": Value(P1, [1, 0, 0, 1], "name", rows={"units": ["a", "b" * 257, "c", "d"]}),
    # What is asked of the values: own edges, a floor of probabilities, a decision threshold.
    "own edges": Value(P1, [1, 0, 0, 1], (4, 4, (0.2 + 0.7 + 0.5) / 4), {"bin_edges": [0, 0.25, 0.5, 1]}),
    "own edges and scores on them": Value(
        [0.25, 0.5, 0.5, 1.0], [1, 0, 1, 1], (4, 4, (0.75 + 0) / 4), {"bin_edges": [0, 0.25, 0.5, 1]}),
    "own edges of float32": Value(
        [0.4, 0.4, 0.45, 0.45], [1, 0, 0, 0], (4, 4, (abs(1 - 0.8) + 0.9) / 4), {"bin_edges": [0, 0.4, 1]}, dtype="float32"),
    "own edges out of order": Value(P1, [1, 0, 0, 1], "order", {"bin_edges": [0, 0.5, 0.25, 1]}),
    "own edges in percent": Value(P1, [1, 0, 0, 1], "range", {"bin_edges": [0, 50, 100]}),
    "no bins": Value(P1, [1, 0, 0, 1], "range|greater_than_equal", {"bins": 0}),
    "a floor of probabilities": Value(
        [[1.0, 0.0], [0.5, 0.5]], [1, 0], (2, 2, (math.log(1e6) + math.log(2)) / 2), metric="nll(floor=1e-06)"),
    "a label of probability 0": Value(
        [[1.0, 0.0], [0.5, 0.5]], [1, 0], (2, 2, None), metric="nll", states={"reason": "zero_probability"}),
    "a floor of 1": Value(P1, [1, 0, 0, 1], "range", metric="nll(floor=1)"),
    "a decision threshold": Value(
        P1, [1, 0, 0, 1], (4, 4, (2 - 1 * 0.25 / 0.75) / 4), metric="net_benefit(threshold=0.25)"),
    "a score on a decision threshold": Value(
        P1, [1, 0, 0, 1], (4, 4, (1 - 1 * 0.6 / 0.4) / 4), metric="net_benefit(threshold=0.6)"),
    "a decision threshold in percent": Value(P1, [1, 0, 0, 1], "range", metric="net_benefit(threshold=30)"),
    # Nothing.
    "no label at all": Value(P3, [None] * 4, (0, 0, None), states={"reason": "no_data"}),
    "a reader of nothing": Value(
        P3, [[0, None], [1, None], [2, None], [0, None]], (4, 4, ece_of(TOP, [[1], [1], [1], [0]]))),
    "labels as a column": Value(P3, [[0], [1], [2], [0]], (4, 4, ece_of(TOP, [[1], [1], [1], [0]]))),
    "a score that is no number": Value([0.9, NAN, 0.6, 0.3], [1, 0, 0, 1], "finite|null|number|missing|json"),
    "an infinite logit": Value([[1.0, -math.inf, 0.0]] * 2, [0, 2], "finite|number|json", logits=True),
    "truth values as names": Value(
        [[0.1, 0.9], [0.8, 0.2]], [True, False], (2, 2, 0.15), {"classes": [False, True]}),
    # Reports of other libraries that were right here.
    "a score of 1 in the last bin": Value([0.95, 1.0], [1, 0], (2, 2, (2 * 0.475) / 2), states={"n_units": 2}),
    "certain scores in two bins": Value([1, 1, 1, 1, 0], [0, 0, 1, 1, 1], (5, 5, (2 + 1) / 5), {"bins": 2}),
    "certain scores that are right": Value([0.0, 1.0, 1.0], [0, 1, 1], (3, 3, 0.0)),
    "small scores of what occurred": Value([0.01, 0.001, 0.005], [1, 1, 1], (3, 3, (0.99 + 0.999 + 0.995) / 3)),
    "fewer bins than scores": Value(
        [0.25, 0.25, 0.55, 0.75, 0.75], [0, 0, 1, 1, 1], (5, 5, (2 * 0.25 + 0.45 + 2 * 0.25) / 5), {"bins": 2}),
    "labels of one class": Value([0.9, 0.8], [1, 1], (2, 2, (0.1 + 0.2) / 2)),
    "a class without labels": Value(P3, [0, 0, 1, 1], (4, 4, ece_of(TOP, [[1], [0], [0], [0]]))),
    "Brier score of two classes": Value([0.6, 0.6], [0, 0], (2, 2, 2 * 0.36), metric="brier"),
    "a probability below the normal numbers": Value([1e-320, 0.5], [1, 1], (2, 2, (-math.log(1e-320) + math.log(2)) / 2), metric="nll"),
    "tied scores in bins of equal mass": Value(
        [0.1] * 7 + [0.2] * 2 + [0.9], [0] * 6 + [1, 0, 1, 1], (10, 10, (0.3 + 0.6 + 0.1) / 10), metric="adaptive_ece"),
}  # fmt: skip
