"""Tables whose names of columns state other classes than their places, for every argument that has one column per class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant as cal
from calibrant.client.rows import pieces

P = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]])
# Class 3 does not occur: read by their places, all labels would be classes, and all wrong.
LABELS = [1, 2, 1, 2]
COUNTS = np.eye(3, dtype=int)[[0, 1, 0, 1]]
SPEC = cal.PaneSpec("multiclass", 3)


def of_pandas(names: list[Any], values: Any = P) -> Any:
    return pd.DataFrame(values, columns=names)


def columns_of(names: list[Any], values: Any) -> dict[str, Any]:
    return {str(name): values[:, place] for place, name in enumerate(names)}


def of_polars(names: list[Any], values: Any = P) -> Any:
    return pl.DataFrame(columns_of(names, values))


def of_arrow(names: list[Any], values: Any = P) -> Any:
    return pa.table(columns_of(names, values))


def of_reader(names: list[Any], values: Any = P) -> Any:
    return of_arrow(names, values).to_reader()


Make = Callable[..., Any]
TABLES = pytest.mark.parametrize("table", [of_pandas, of_polars, of_arrow, of_reader])


@TABLES
@pytest.mark.parametrize(
    "names", [["p1", "p2", "p3"], [1, 2, 3], ["class_2", "class_1", "class_0"], [10, 20, 30]]
)
@pytest.mark.parametrize("function", [cal.accuracy, cal.fit_temperature, cal.Pane.fill])
def test_numbers_are_not_counted_again(
    names: list[Any], table: Make, function: Callable[..., Any]
) -> None:
    with pytest.raises(cal.CalibrationInputError, match=r"numbered .* \(class_number\)"):
        function(table(names), LABELS)
    with pytest.raises(cal.CalibrationInputError, match="class_number"):
        function(logits=table(names), labels=LABELS)


@TABLES
def test_what_the_caller_states_counts(table: Make) -> None:
    assert float(cal.accuracy(table(["p1", "p2", "p3"]), LABELS, classes=[1, 2, 3])) == 1.0
    assert float(cal.accuracy(table(["p1", "p2", "p3"]), label_counts=COUNTS)) == 1.0
    for names in (["p0", "p1", "p2"], ["a", "b", "c"], ["x_1", "y_2", "z_3"]):
        assert float(cal.accuracy(table(names), [0, 1, 0, 1])) == 1.0


@TABLES
@pytest.mark.parametrize(
    ("scores", "other"),
    [
        (["a", "b", "c"], ["c", "b", "a"]),
        (["p0", "p1", "p2"], ["n_1", "n_0", "n_2"]),
        (["p_cat", "p_cow", "p_dog"], ["label_cow", "label_cat", "label_dog"]),
    ],
)
def test_columns_in_another_order_are_not_matched_by_place(
    scores: list[str], other: list[str], table: Make
) -> None:
    for name, values in (("label_counts", COUNTS), ("label_shares", COUNTS / 1.0)):
        given = {name: of_pandas(other, values)}
        with pytest.raises(cal.CalibrationInputError, match=f"{name}: .*column_order"):
            cal.ece(table(scores), **given)
        assert float(cal.accuracy(table(scores), **{name: of_pandas(scores, values)})) == 1.0
    with pytest.raises(cal.CalibrationInputError, match=r"labels: .*column_order"):
        cal.evaluate(table(scores), of_pandas(other, COUNTS), "ece", task="multilabel")
    found = cal.evaluate(table(scores), of_pandas(scores, COUNTS), "accuracy", task="multilabel")
    assert float(found["accuracy"]) == 1.0
    with pytest.raises(cal.CalibrationInputError, match=r"other: .*column_order"):
        cal.compare(table(scores), of_pandas(other, P[:, [1, 0, 2]]), [0, 1, 0, 1])


def test_columns_that_a_caller_lists() -> None:
    rows = of_pandas(["p1", "p2", "p3"]).assign(label=LABELS)
    named = {"probabilities": ["p1", "p2", "p3"], "labels": "label"}
    with pytest.raises(cal.CalibrationInputError, match=r"class_names=.*class_number"):
        cal.fill_by(rows, SPEC, **named)
    (pane,) = cal.fill_by(rows, SPEC, **named, class_names=["1", "2", "3"]).values()
    assert float(pane.evaluate("accuracy")["accuracy"]) == 1.0


def test_rows_for_a_service_are_sent_by_place_only_where_that_is_meant() -> None:
    with pytest.raises(cal.CalibrationInputError, match="names of the model's classes"):
        pieces({"probabilities": of_pandas(["p1", "p2", "p3"]), "labels": LABELS})
    assert pieces({"probabilities": of_pandas(["p1", "p2", "p3"])})[0].n == 4
    assert pieces({"probabilities": P, "labels": LABELS})[0].n == 4


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (P, pd.Series(pd.arrays.SparseArray([0, 1, 0, 1]))),
        (pd.DataFrame(P).astype(pd.SparseDtype(float)), [0, 1, 0, 1]),
    ],
)
def test_columns_without_an_arrow_form_are_named(scores: Any, labels: Any) -> None:
    with pytest.raises(cal.CalibrationInputError, match=r"to_numpy.*\(arrow_type\)"):
        cal.ece(scores, labels)


def test_a_view_of_memory_is_an_array() -> None:
    assert float(cal.accuracy(memoryview(P), [0, 1, 0, 1])) == 1.0


@pytest.mark.parametrize("prefix", ["", "p_"])
def test_classes_in_another_order_than_the_columns_are_rejected(prefix: str) -> None:
    scores = pd.DataFrame({f"{prefix}cat": [0.9, 0.2], f"{prefix}dog": [0.1, 0.8]})
    labels = ["cat", "dog"]
    assert cal.accuracy(scores, labels, classes=["cat", "dog"]).value == 1.0
    with pytest.raises(cal.CalibrationInputError, match="expected one order") as caught:
        cal.accuracy(scores, labels, classes=["dog", "cat"])
    assert caught.value.violations[0].rule == "column_order"
    columns, spec = list(scores), cal.PaneSpec("multiclass", 2)
    table = scores.assign(label=labels)
    with pytest.raises(cal.CalibrationInputError, match="expected one order"):
        cal.fill_by(table, spec, probabilities=columns, labels="label", class_names=["dog", "cat"])
    # Numbers in the names of columns may be places.
    numbered = scores.set_axis(["p0", "p1"], axis=1)
    assert cal.accuracy(numbered, [1, 0], classes=[1, 0]).value == 1.0


@pytest.mark.parametrize(
    "classes", [{"cat", "dog"}, frozenset({"cat", "dog"}), iter(["cat", "dog"])]
)
def test_names_without_an_order_are_rejected(classes: object) -> None:
    """The order of a set of texts differs from one process to the next."""
    with pytest.raises(cal.CalibrationInputError, match="as names of classes"):
        cal.accuracy([[0.9, 0.1], [0.2, 0.8]], ["cat", "dog"], classes=classes)
    assert cal.accuracy([0.9, 0.2], [1, 255], ignore_label={-100, 255}).n == 1


def test_types_that_arrow_lacks_are_rejected() -> None:
    labels = pl.Series([0, 1], dtype=pl.Int128)
    with pytest.raises(cal.CalibrationInputError, match="cannot export as Arrow"):
        cal.accuracy([0.9, 0.2], labels)
