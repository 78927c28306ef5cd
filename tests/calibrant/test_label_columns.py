"""Columns of labels: plain ones are read at once, with the same rows and errors as row by row."""

from __future__ import annotations

import pytest

from calibrant.core.errors import CalibrationInputError
from calibrant.input.labels import read_labels

PLAIN = {"ids": ["a", "b", "a"], "labels": [0, 2, 1]}
NAMED = PLAIN | {"raters": ["ann", "ann", "bob"]}


def row_by_row(columns, **more):
    """The same columns, with a revision that changes nothing: such rows are read one by one."""
    return read_labels({**columns, "revision": [None] * len(columns["ids"])}, 3, **more)


@pytest.mark.parametrize("columns", [PLAIN, NAMED])
def test_plain_columns_give_the_rows_of_single_reading(columns):
    found = read_labels(columns, 3)
    assert found == row_by_row(columns)
    assert [row.id for row in found.rows] == columns["ids"]
    assert read_labels({**columns, "raters": columns.get("raters")}, 3) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": [0, 3, 1]},
        {"labels": [0, -1, 1]},
        {"labels": [0, True, 1]},
        {"labels": [0, 1.5, 1]},
        {"labels": [0, None, 1]},
        {"labels": [0, "0", 1]},
        {"labels": [0, 2**70, 1]},
        {"ids": ["a", "", "b"]},
        {"ids": ["a", 1.0, "b"]},
        {"ids": ["a", "b\n", "b"]},
        {"raters": ["ann", "", "bob"]},
        {"raters": ["ann", 5.0, "bob"]},
    ],
)
def test_a_wrong_row_among_plain_ones_is_named_as_before(wrong):
    columns = PLAIN | wrong
    with pytest.raises(CalibrationInputError) as found:
        read_labels(columns, 3)
    with pytest.raises(CalibrationInputError) as expected:
        row_by_row(columns)
    assert found.value.violations == expected.value.violations
    assert found.value.violations[0].pointer.endswith("/1")
    assert read_labels(columns, 3, partial=True) == row_by_row(columns, partial=True)


def test_several_ratings_and_class_names_are_read_row_by_row():
    columns = {"ids": ["a", "b"], "labels": [[1, 1, 0], "two"], "raters": [None, "ann"]}
    found = read_labels(columns, 3, ["zero", "one", "two"])
    assert found.rows[0].unnamed == {1: 2, 0: 1} and found.rows[1].ratings == [("ann", 2, None)]


@pytest.mark.parametrize(
    ("rating", "names", "expected"),
    [
        ("yes", ["no", "maybe"], "Received class 'yes' (str); expected a class of this model: 'no', 'maybe'. Correct the label."),
        ("y" * 500, None, f"Received '{'y' * 40}' (str), which is not a class; expected a class index, an integer. "
         "Correct the label, or name the classes: classes=; of a model of the service, PATCH its setting classes."),
        (1.5, None, "Received 1.5 (float), which is not a class; expected a class index, an integer. Correct the label."),
        ({"a": 1}, None, "Received a value of type dict, which is not a class; expected a class index, an integer. Correct the label."),
    ],
)  # fmt: skip
def test_a_label_that_is_no_class_is_shown_with_the_classes(rating, names, expected):
    with pytest.raises(CalibrationInputError) as found:
        read_labels({"ids": ["a"], "labels": [rating]}, 2, names)
    assert found.value.violations[0].detail == expected


def test_labels_by_id_follow_the_rule_of_all_labels():
    columns = {
        "ids": ["a", "b", "c"],
        "labels": [1.0, [True, None], -100],
        "raters": [None, ["ann", None], None],
    }
    found = read_labels(columns, 2, ignored=(-100,))
    assert [(row.id, row.unnamed, row.ratings) for row in found.rows] == [
        ("a", {1: 1}, []),
        ("b", {}, [("ann", 1, None)]),
    ]
    withdrawn = read_labels({"ids": ["a"], "labels": [[None, None]], "raters": [["ann", None]]}, 2)
    assert withdrawn.rows[0].ratings == [("ann", -1, None)]
    with pytest.raises(CalibrationInputError) as error:
        read_labels({"ids": ["a"], "labels": [[None, None]]}, 2)
    assert error.value.violations[0].rule == "rater_required"


def test_one_hot_labels_by_id():
    rows = {"ids": list("abcd"), "labels": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]}
    with pytest.raises(CalibrationInputError) as error:
        read_labels(rows, 3)
    assert error.value.violations[0].rule == "one_hot"
    few = {name: column[:3] for name, column in rows.items()}
    assert read_labels(few, 3).warnings == ("possibly_one_hot",)
    named = rows | {"raters": [["ann", "bob", "eve"]] * 4}
    assert read_labels(named, 3).warnings == ()
