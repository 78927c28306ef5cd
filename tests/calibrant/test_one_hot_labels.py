"""One-hot rows are not ratings of several raters: they are rejected with what to pass instead."""

import numpy as np
import pytest

import calibrant as cal

rng = np.random.default_rng(5)
P = rng.dirichlet(np.ones(3), 40)
CLASSES = rng.integers(0, 3, 40)
ONE_HOT = np.eye(3, dtype=int)[CLASSES]


@pytest.mark.parametrize(
    "labels", [ONE_HOT, ONE_HOT.tolist(), ONE_HOT.astype(bool)], ids=["array", "lists", "bool"]
)
def test_one_hot_rows_are_rejected(labels):
    with pytest.raises(cal.CalibrationInputError, match=r"argmax\(axis=1\)") as error:
        cal.ece(P, labels)
    [violation] = error.value.violations
    assert (violation.argument, violation.rule) == ("labels", "one_hot")


def test_what_the_message_names_gives_the_same_result():
    assert float(cal.ece(P, label_counts=ONE_HOT)) == float(cal.ece(P, ONE_HOT.argmax(axis=1)))


def test_raters_who_disagree_in_some_row_are_ratings():
    ratings = rng.integers(0, 3, (40, 3))
    assert cal.ece(P, ratings).n_ratings == 120
    few = ONE_HOT[:3]
    assert cal.ece(P[:3], few).n_ratings == 9


@pytest.mark.parametrize(
    ("label", "received"), [(1.5, r"1\.5 \(float\)"), ("cat", r"'cat' \(str\)")]
)
def test_a_label_that_is_no_class_is_shown(label, received):
    with pytest.raises(cal.CalibrationInputError, match=f"Received {received}"):
        cal.ece(P[:2], [0, label])
