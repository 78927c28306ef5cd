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
        {"labels": [0, 1.0, 1]},
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
        ("yes", ["no", "maybe"], "Received the rating 'yes'; expected a class index from 0 to 1, or one of 'no', 'maybe'."),
        ("y" * 500, None, f"Received the rating '{'y' * 60}'; expected a class index from 0 to 1."),
        (1.0, None, "Received the rating 1.0; expected a class index from 0 to 1."),
        ({"a": 1}, None, "Received a rating of type dict; expected a class index from 0 to 1."),
    ],
)  # fmt: skip
def test_a_label_that_is_no_class_is_shown_with_the_classes(rating, names, expected):
    with pytest.raises(CalibrationInputError) as found:
        read_labels({"ids": ["a"], "labels": [rating]}, 2, names)
    assert found.value.violations[0].detail == expected
