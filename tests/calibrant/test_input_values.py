"""Scores, labels and counts as people have them, with values computed without the product."""

from __future__ import annotations

import contextlib
import inspect
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant as cal
from calibrant import CalibrationInputError
from calibrant.core.table_columns import one_column
from calibrant.input.row_sums import tolerance_of

P4 = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
RNG = np.random.default_rng(0)
Z = 2 * RNG.normal(size=4000) + 1.5
# The truth of the log-odds: P(y = 1) = σ(z / 2 − 1).
Y = (RNG.random(4000) < 1 / (1 + np.exp(1 - Z / 2))).astype(int)
P = 1 / (1 + np.exp(-Z))


def rule_of(error: pytest.ExceptionInfo[CalibrationInputError]) -> tuple[str, str]:
    first = error.value.violations[0]
    return first.argument, first.rule


# Log-odds of class 1.


@pytest.mark.parametrize(
    "logits", [Z, Z[:, None], pd.Series(Z), pl.Series(Z), pa.array(Z), Z.tolist()]
)
def test_log_odds_mean_what_their_logistic_function_means(logits: Any) -> None:
    found, expected = cal.Pane.fill(logits=logits, labels=Y), cal.Pane.fill(P, Y)
    assert found.spec == expected.spec
    assert found.digest() == expected.digest()


def test_metrics_maps_and_peers_of_log_odds_are_those_of_probabilities() -> None:
    for function in (cal.ece, cal.brier, cal.nll):
        one, other = function(logits=Z, labels=Y), function(P, Y)
        assert one.value == pytest.approx(other.value, abs=1e-12)
        assert one.interval == pytest.approx(other.interval, abs=1e-12)
    for method in ("platt", "isotonic", "temperature", "beta"):
        found, expected = (
            cal.fit_map(labels=Y, method=method, **given)
            for given in ({"logits": Z}, {"probabilities": P})
        )
        assert (found.scope, found.digest) == (expected.scope, expected.digest)
        assert found(logits=Z[:5]).shape == (5,)
    platt = cal.fit_map(logits=Z, labels=Y, method="platt")
    assert platt.scope == "positive"
    odds = np.log(np.array([0.2, 0.5, 0.9]) / np.array([0.8, 0.5, 0.1]))
    assert platt([0.2, 0.5, 0.9]) == pytest.approx(1 / (1 + np.exp(1 - odds / 2)), abs=0.03)
    peers = [
        cal.compat(labels=Y, peer="scikit-learn", **given)
        for given in ({"logits": Z}, {"probabilities": P})
    ]
    assert peers[0] == peers[1]
    assert cal.reliability(logits=Z, labels=Y).scope == "positive"


def test_certain_log_odds_do_not_underflow() -> None:
    # −log σ(−z) = z + log(1 + e^−z)
    for z in (10.0, 20.0, 40.0, 500.0, 800.0, 1e5):
        found = cal.nll(logits=[z, -z], labels=[0, 0])
        assert found.value == pytest.approx((z + 2 * math.log1p(math.exp(-z))) / 2, rel=1e-9)


# Missing cells.

READERS = {"r1": [0, 1, 2, None], "r2": [0, None, 1, 1]}
TABLES: dict[str, Any] = {
    "pandas": pd.DataFrame(READERS),
    "pandas objects": pd.DataFrame(READERS, dtype=object),
    "pandas nullable": pd.DataFrame(READERS).convert_dtypes(),
    "pandas pyarrow": pd.DataFrame(READERS).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame(READERS),
    "Arrow": pa.table(READERS),
    "Arrow in chunks": pa.concat_tables([pa.table(READERS).slice(i, 1) for i in range(4)]),
    "Arrow lists": pa.array([[0, 0], [1, None], [2, 1], [None, 1]]),
    "Arrow fixed lists": pa.array([[0, 0], [1, None], [2, 1], [None, 1]], pa.list_(pa.int8(), 2)),
    "masked": np.ma.masked_invalid(pd.DataFrame(READERS).to_numpy()),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_reader_takes_no_other_reader_along(name: str) -> None:
    """Gaps by hand: bin of .7: 2 right of 2; of .8: 1 of 1 and 1 of 2; of .4: 0 of 1; |.6| + |.4| + |.4| of 6 ratings."""
    report = cal.evaluate(P4, TABLES[name], "ece,accuracy")
    assert (report.n_labelled, report.n_ratings) == (4, 6)
    assert report["ece"].value == pytest.approx((0.6 + 0.4 + 0.4) / 6)
    assert report["accuracy"].value == pytest.approx(4 / 6)
    assert cal.fit_temperature(P4, TABLES[name]).n == 4
    assert cal.Pane.fill(P4, TABLES[name]).counts["n_ratings"] == 6


COUNTS = {"a": [1, 0, None, 0], "b": [0, 1, 0, 2], "c": [None, 0, 1, 0]}


@pytest.mark.parametrize("make", [
    pd.DataFrame, lambda x: pd.DataFrame(x).convert_dtypes(), lambda x: pd.DataFrame(x).convert_dtypes(dtype_backend="pyarrow"),
    pl.DataFrame, pa.table, lambda x: list(map(list, zip(*x.values(), strict=True))),
    lambda x: pd.DataFrame(x).to_numpy(), lambda x: pa.array(list(map(list, zip(*x.values(), strict=True)))),
])  # fmt: skip
def test_a_null_count_is_none_and_what_lies_under_it_is_not_read(make: Any) -> None:
    report = cal.evaluate(P4, label_counts=make(COUNTS), metrics="accuracy")
    assert (report.n_ratings, report["accuracy"].value) == (5, pytest.approx(3 / 5))


def test_values_under_a_mask_are_never_read() -> None:
    """An array whose null slots hold a class that the model has, and one that it does not have."""
    for under in (1, 77):
        mask = np.array([False, True, False, False])
        labels = pa.array(np.array([0, under, 2, 2]), mask=mask)
        assert cal.evaluate(P4, labels, "accuracy").n_ratings == 3
        counts = pa.table({"a": labels, "b": pa.array([0, 1, 0, 0]), "c": pa.array([0, 0, 0, 0])})
        assert cal.evaluate(P4, label_counts=counts, metrics="accuracy").n_ratings == 5
        readers = pa.FixedSizeListArray.from_arrays(
            pa.array(np.array([0, 0, 1, under, 2, 1, 2, 2]), mask=np.arange(8) == 3), 2
        )
        assert cal.evaluate(P4, readers, "accuracy").n_ratings == 7


def test_other_arguments_reject_a_null_with_its_row() -> None:
    column = pd.Series([1, 2, None, 4], dtype="Int64")
    for name in ("weights", "units", "ids", "cases"):
        with pytest.raises(CalibrationInputError) as error:
            cal.ece(P4, [0, 1, 2, 2], **{name: column})
        assert rule_of(error) == (name, "null")
        assert error.value.violations[0].row == 2


def test_readers_in_columns_of_their_own_are_joined_by_cell() -> None:
    columns = {"r1": pa.array([0, None, 2]), "r2": np.array([0.0, 1.0, np.nan])}
    found = one_column("labels", ["r1", "r2"], columns)
    assert cal.evaluate(P4[:3], found, "accuracy").n_ratings == 4


# Labels.


def test_names_of_classes_of_any_sequence() -> None:
    names = ["ant", "bee", "cow"]
    expected = cal.ece(P4, [0, 1, 2, 0]).value
    labels = ["ant", "bee", "cow", "ant"]
    for classes in (
        names,
        tuple(names),
        np.array(names),
        pd.Index(names),
        pd.Categorical(names),
        pl.Series(names),
        pd.Series(names),
    ):
        for given in (
            labels,
            np.array(labels),
            pd.Categorical(labels),
            pd.Series(labels),
            pl.Series(labels),
            pa.array(labels),
        ):
            assert cal.ece(P4, given, classes=classes).value == expected
    with pytest.raises(CalibrationInputError) as error:
        cal.ece(P4, labels, classes=["ant", "bee"])
    assert rule_of(error) == ("classes", "n_classes")


def test_numbers_and_truth_values_as_names_are_no_indices() -> None:
    expected = cal.ece([0.9, 0.2, 0.6], [1, 0, 0]).value
    assert cal.ece([0.9, 0.2, 0.6], [2, 1, 1], classes=np.array([1, 2])).value == expected
    assert cal.ece([0.9, 0.2, 0.6], [True, False, False], classes=[False, True]).value == expected
    assert cal.ece([0.9, 0.2, 0.6], [2.0, 1.0, 1.0], classes=np.array([1.0, 2.0])).value == expected
    with pytest.raises(CalibrationInputError, match="expected a class of this model: 1, 2"):
        cal.ece([0.9, 0.2, 0.6], [0, 1, 1], classes=[1, 2])


def test_several_values_may_mean_no_label() -> None:
    labels = [[0, -100], [255, 255], [2, 2], [0, 1]]
    report = cal.evaluate(P4, labels, "accuracy", ignore_label=(-100, 255))
    assert (report.n_labelled, report.n_ratings) == (3, 5)
    assert cal.ece(P4, ["a", "?", "b", "c"], classes=["a", "b", "c"], ignore_label="?").n == 3


def test_float_and_truth_value_counts() -> None:
    one_hot = np.eye(3)[[0, 1, 2, 0]]
    expected = cal.ece(P4, [0, 1, 2, 0]).value
    for counts in (
        one_hot,
        one_hot.astype(bool),
        pd.DataFrame(one_hot.astype(bool)),
        one_hot.tolist(),
    ):
        assert cal.ece(P4, label_counts=counts).value == expected
    with pytest.raises(CalibrationInputError) as error:
        cal.ece(P4, label_counts=one_hot / 2)
    assert rule_of(error) == ("label_counts", "integer")


# Scores.


@pytest.mark.parametrize(("decimals", "k"), [(2, 10), (3, 10), (3, 100), (4, 1000)])
def test_rows_rounded_to_decimals_are_accepted(decimals: int, k: int) -> None:
    """The largest deviation that rounding can cause is K / 2 units of the last place; random rows are far within."""
    rows = np.round(RNG.dirichlet(np.ones(k), 500), decimals)
    off = np.abs(rows.sum(axis=1) - 1)
    assert (off > 1e-3).any()
    rows = rows[off <= 0.05]
    for given in (rows, rows.astype(np.float32)):
        assert cal.accuracy(given, np.zeros(len(rows), int)).n == len(rows)


def test_the_tolerance_of_a_row_is_its_own() -> None:
    rows = np.array(
        [[0.33, 0.33, 0.33], [1 / 3, 1 / 3, 0.33], [0.5, 0.3, 0.1], [0.333, 0.333, 0.333]]
    )
    assert tolerance_of(rows).tolist() == [0.015, 1e-3, 0.05, 0.0015]
    with pytest.raises(CalibrationInputError) as error:
        cal.ece(rows, [0, 0, 0, 0])
    assert [each.row for each in error.value.violations] == [1, 2]


def test_normalise_divides_every_row_and_states_how_much() -> None:
    rows = np.array([[2.0, 1.0, 1.0], [30.0, 60.0, 10.0], [0.2, 0.3, 0.5]])
    report = cal.evaluate(rows, [0, 1, 2], "brier", normalize=True)
    assert (report.about["n_normalised"], report.about["largest_deviation"]) == (2, 99.0)
    assert report["brier"].value == pytest.approx(
        cal.brier(rows / rows.sum(axis=1, keepdims=True), [0, 1, 2]).value
    )
    for wrong in ([[0.0, 0.0, 0.0]], [[-0.1, 0.6, 0.5]], [[np.inf, 1.0, 1.0]]):
        with pytest.raises(CalibrationInputError):
            cal.brier(wrong, [0], normalize=True)


def test_adjusted_values_are_stated() -> None:
    report = cal.evaluate([1.0000000000000002, -1e-17, 0.5], [1, 0, 1], "brier")
    assert report.about["n_adjusted"] == report["brier"].extra["n_adjusted"] == 2
    assert "2 values outside [0, 1] by rounding" in repr(report)
    assert report["brier"].value == pytest.approx(2 * 0.25 / 3)
    assert "n_adjusted" not in cal.evaluate([1.0, 0.0, 0.5], [1, 0, 1], "brier").about


class Tensor:
    """What torch has of a tensor that is tracked for gradients, on a device, of a type that numpy lacks."""

    dtype = "torch.bfloat16"

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def float(self) -> Any:
        return self._values.astype(np.float32)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_tensors_of_any_type_and_device() -> None:
    assert cal.ece(Tensor([0.75, 0.25]), [1, 0]).value == 0.25


# What no function reads.


@pytest.mark.parametrize(("scores", "said"), [
    ([[1.5, -0.5], [0.2, 0.8]], "If these are logits"),
    ([[70.0, 30.0], [20.0, 80.0]], "If these are percentages, divide them by 100."),
    ([80.0, 20.0], "percentages, divide them by 100; if they are logits"),
    ([[0.9, 0.8, 0.1], [0.2, 0.7, 0.6]], "independent labels (multi-label)"),
    ([[0.5, 0.3, 0.1], [0.2, 0.7, 0.1]], "pass normalize=true"),
    (np.zeros((2, 3, 4)), "an array of shape (2, 3, 4) and type float64"),
    (np.zeros((2, 3, 4)), "np.moveaxis(p, 1, -1).reshape(-1, n_classes)"),
    ({"a": 1}, "a value of type dict"),
    ([0.9, None], "Received null, which is not a number; expected numbers only."),
    ([[0.9, 0.1], [None, 0.2]], "Received null, which is not a number; expected numbers only."),
    ([[0.9, 0.1], None], "Received null; expected a list of numbers."),
    ([Decimal("0.9"), Decimal("0.2")], "a value of type Decimal, which is not a number"),
])  # fmt: skip
def test_messages_say_what_came_and_what_to_do(scores: Any, said: str) -> None:
    with pytest.raises(CalibrationInputError) as error:
        cal.ece(scores, [0, 1])
    assert said in str(error.value)


def test_no_advice_on_logits_for_a_sum_that_is_off() -> None:
    with pytest.raises(CalibrationInputError) as error:
        cal.ece([[0.5, 0.3, 0.1]], [0])
    assert "logits" not in str(error.value)


ODD: list[Any] = [
    5, -1, 2.5, math.nan, 10**400, True, "x", b"x", [], [0, 0.5, 1], {}, np.array(3), np.zeros((4, 0)), np.zeros((2, 2, 2)),
    np.array(["a", "b"]), object(), [None] * 4, [object()] * 4, [1 + 2j] * 4, np.zeros(4, [("a", int)]), Ellipsis, [[]] * 4,
]  # fmt: skip
ARGUMENTS = (
    "probabilities", "labels", "metrics", "bins", "binning", "edges", "min_count", "scope", "raters", "ci", "weights", "units",
    "ids", "cases", "classes", "ignore_label", "normalize",
)  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "function", [cal.evaluate, cal.reliability, cal.fit_temperature, cal.fit_map, cal.compat]
)
def test_no_argument_of_any_type_raises_another_error(function: Any, name: str) -> None:
    if name not in inspect.signature(function).parameters:
        return
    for value in ODD:
        given = {"probabilities": P4, "labels": [0, 1, 2, 0]} | {name: value}
        with contextlib.suppress(CalibrationInputError):
            function(**given)


def test_own_words_for_numbers_of_bins() -> None:
    assert cal.ece(P4, [0, 1, 2, 0], bins=4.0).value == cal.ece(P4, [0, 1, 2, 0], bins=4).value
    with pytest.raises(CalibrationInputError, match="expected the number of bins, an integer"):
        cal.ece(P4, [0, 1, 2, 0], bins="many")
    assert cal.compat([0.9, 0.2], [1, 0], "all").keys() == cal.compat([0.9, 0.2], [1, 0]).keys()
