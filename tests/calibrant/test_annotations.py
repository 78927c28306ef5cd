"""Long tables of annotations, against a naive reading of the same lines, and the matrix of readers that they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant as cal

RNG = np.random.default_rng(32)
N, K, RATERS = 40, 3, 5
P = RNG.dirichlet(np.ones(K), N)
READERS = RNG.integers(-1, K, (N, RATERS))
LINES = [(i, r, int(READERS[i, r])) for i in range(N) for r in range(RATERS) if READERS[i, r] >= 0]
LINES = [LINES[i] for i in RNG.permutation(len(LINES))]
FRAME = pd.DataFrame(LINES, columns=["task", "worker", "label"])
TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "lists": lambda frame: frame.to_dict("list"),
    "numpy": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "pandas": lambda frame: frame,
    "pyarrow types": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda frame: pl.from_pandas(frame),
    "arrow": lambda frame: pa.Table.from_pandas(frame),
}


def long_of(table: Any) -> cal.Annotations:
    return cal.Annotations(table["task"], table["label"], table["worker"])


def naive_accuracy(lines: list[tuple[Any, Any, Any]]) -> tuple[float, int]:
    """Pooled accuracy and number of labelled predictions, line by line; a rater's last line counts."""
    last = {(item, rater): label for item, rater, label in lines if 0 <= item < N}
    given = [(item, label) for (item, _), label in last.items() if label is not None]
    hits = [P[item].argmax() == label for item, label in given]
    return float(np.mean(hits)), len({item for item, _ in given})


@pytest.mark.parametrize("form", TABLES)
def test_a_long_table_means_its_matrix_of_readers(form: str) -> None:
    found = cal.evaluate(P, long_of(TABLES[form](FRAME)), ["ece", "brier"], ids=range(N))
    matrix = np.where(READERS < 0, np.nan, READERS)
    expected = cal.evaluate(P, matrix, ["ece", "brier"], ids=range(N))
    assert found.to_dict() == expected.to_dict()
    accuracy = cal.accuracy(P, long_of(TABLES[form](FRAME)), ids=list(range(N)))
    assert (accuracy.value, accuracy.n) == pytest.approx(naive_accuracy(LINES), abs=1e-12)


def test_the_last_rating_of_a_rater_counts_and_a_missing_one_withdraws() -> None:
    more = [*LINES, (0, 0, 2), (0, 0, 1), (1, 3, 0), (1, 3, None), (N + 7, 0, 1)]
    frame = pd.DataFrame(more, columns=["task", "worker", "label"])
    found = cal.accuracy(P, long_of(frame), ids=range(N))
    assert (found.value, found.n) == pytest.approx(naive_accuracy(more), abs=1e-12)


def test_unnamed_ratings_add_up_and_names_join_as_texts() -> None:
    long = cal.Annotations(["7", "7", "8"], [0, 1, 1], [None, None, "ann"])
    found = cal.evaluate([0.2, 0.9], long, ["accuracy"], ids=[7, 8])
    assert found["accuracy"].value == pytest.approx(2 / 3)
    assert found.about["n_ratings"] == 3


def test_named_ratings_that_look_one_hot_are_ratings() -> None:
    n = 6
    items, raters = np.repeat(np.arange(n), K), np.tile(["a", "b", "c"], n)
    one_hot = np.eye(K, dtype=int)[np.arange(n) % K].reshape(-1)
    found = cal.evaluate(P[:n], cal.Annotations(items, one_hot, raters), "accuracy", ids=range(n))
    assert found.about["n_ratings"] == n * K and "warnings" not in found.about
    with pytest.raises(cal.CalibrationInputError, match="one_hot"):
        cal.evaluate(P[:n], cal.Annotations(items, one_hot), "accuracy", ids=range(n))


def test_names_of_classes_ignored_labels_and_other_functions() -> None:
    long = cal.Annotations(["a", "b", "b"], ["dog", "cat", "void"], ["x", "x", "y"])
    data: dict[str, Any] = {
        "ids": ["a", "b"],
        "classes": ["cat", "dog"],
        "ignore_label": "void",
    }
    rows = np.array([[0.3, 0.7], [0.6, 0.4]])
    assert cal.accuracy(rows, long, **data).value == 1.0
    del data["ignore_label"], data["classes"]
    long = cal.Annotations(["a", "b"], [1, 0], ["x", "x"])
    pane = cal.Pane.fill(rows, long, **data)
    assert pane.evaluate("accuracy")["accuracy"].value == 1.0


@pytest.mark.parametrize(
    ("ids", "labels", "raters", "rows", "message"),
    [
        ([1], [0, 1], None, [1], "annotations: Received 2 rows of labels; expected 1"),
        ([1], [0], ["", ""], [1], "annotations: Received 2 rows of raters; expected 1"),
        ([1.5], [0], None, [1], "annotations, row 0: Received a value of type float"),
        ([1], [0], [""], [1], "annotations, row 0: Received an empty text"),
        ([1], [0], None, None, "ids: Received annotations without ids"),
        ([1], [0], None, [2], "none is an id of a prediction"),
        (FRAME, [0], None, [1], "value of type DataFrame for ids; expected one value per rating"),
        ([1], ["cow"], None, [1], "annotations, row 0: Received 'cow'"),
    ],
)
def test_errors_name_what_came(ids: Any, labels: Any, raters: Any, rows: Any, message: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as error:
        cal.ece([0.4], cal.Annotations(ids, labels, raters), ids=rows)
    assert message in str(error.value)


def test_a_label_that_is_no_class_is_named_by_its_line() -> None:
    long = cal.Annotations(["a", "b", "b", "z"], [0, 1, 7, 9])
    with pytest.raises(cal.CalibrationInputError) as error:
        cal.ece([[0.7, 0.3], [0.2, 0.8]], long, ids=["a", "b"])
    (violation,) = error.value.violations
    assert (violation.pointer, violation.rule) == ("/annotations/labels/2", "class_range")
