"""Multi-label predictions, against binary models made by hand and naive sums in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant as cal

RNG = np.random.default_rng(8)
N, K = 120, 3
P = RNG.uniform(0.02, 0.98, (N, K))
Y = (RNG.uniform(size=(N, K)) < P**1.4).astype(np.int64)
NAMES = ["car", "dog", "sky"]


def naive_ece(p: Any, y: Any, bins: int = 15) -> float:
    """Bins (a, b] of the probability of the label; Σ |Σ p − Σ y| / n."""
    place = np.clip(np.ceil(p * bins).astype(int) - 1, 0, bins - 1)
    return sum(abs((p - y)[place == b].sum()) for b in range(bins)) / len(p)


def test_each_label_is_a_binary_model_and_the_rest_are_means() -> None:
    found = cal.evaluate(P, Y, "ece,brier,nll", classes=NAMES, task="multilabel")
    assert isinstance(found, cal.MultilabelReport) and list(found.labels) == NAMES
    eces = [naive_ece(P[:, k], Y[:, k]) for k in range(K)]
    assert [found.labels[name]["ece"].value for name in NAMES] == pytest.approx(eces, abs=1e-12)
    assert found["ece"].value == pytest.approx(np.mean(eces), abs=1e-12)
    nll = -np.where(Y == 1, np.log(P), np.log1p(-P)).mean()
    assert found["nll"].value == pytest.approx(nll, abs=1e-12)
    assert found["brier"].value == pytest.approx(2 * ((P - Y) ** 2).mean(), abs=1e-12)
    assert found["ece"].interval is None and found["ece"].n == N
    assert (found.n_predictions, found.n_ratings) == (N, N * K)
    for k, name in enumerate(NAMES):
        alone = cal.evaluate(P[:, k], Y[:, k], "ece,brier,nll")
        for slug, each in found.labels[name].items():
            assert each.value == pytest.approx(alone[slug].value, abs=1e-12)
            assert each.interval == pytest.approx(alone[slug].interval, abs=1e-12)
            assert each.null_q95 == pytest.approx(alone[slug].null_q95, abs=1e-12)
        assert found.temperatures[name] == cal.fit_temperature(P[:, k], Y[:, k])


def test_temperatures_are_those_of_each_sigmoid() -> None:
    logits = 3 * np.log(P / (1 - P))
    found = cal.evaluate(logits=logits, labels=Y, metrics="nll", task="multilabel")
    assert isinstance(found, cal.MultilabelReport)
    for k, temperature in enumerate(found.temperatures.values()):

        def loss(t: float, k: int = k) -> float:
            signed = np.where(Y[:, k] == 1, logits[:, k], -logits[:, k]) / t
            return float(np.logaddexp(0, -signed).sum())

        t = float(temperature)
        assert loss(t) <= min(loss(t * 0.999), loss(t * 1.001))


@pytest.mark.parametrize(
    "form",
    [
        "lists",
        "float",
        "bool",
        "pandas",
        "tuples",
        "nullable",
        "polars",
        "Arrow",
        "tuples with None",
    ],
)
def test_forms_and_missing_labels(form: str) -> None:
    given: Any = Y.astype(float)
    if form not in ("bool", "pandas", "tuples"):
        given[3, 1] = given[5] = np.nan
    expected = [np.nanmean(np.where(np.isnan(y), np.nan, (p > 0.5) == y)) for p, y in zip(P.T, given.T, strict=True)]  # fmt: skip
    forms: dict[str, Any] = {
        "lists": [[None if np.isnan(x) else int(x) for x in row] for row in given],
        "float": given,
        "bool": Y.astype(bool),
        "pandas": pd.DataFrame(Y, columns=NAMES),
        "tuples": [tuple(row) for row in Y.tolist()],
    }
    forms["tuples with None"] = tuple(map(tuple, forms["lists"]))
    forms["nullable"] = pd.DataFrame(forms["lists"], columns=NAMES, dtype="Int64")
    forms["polars"] = pl.DataFrame(forms["lists"], schema=NAMES, orient="row")
    forms["Arrow"] = pa.array([None if row == [None] * K else row for row in forms["lists"]])
    scores = pd.DataFrame(P) if form == "pandas" else P.tolist() if form == "lists" else P
    found = cal.evaluate(scores, forms[form], "accuracy", task="multilabel")
    assert found["accuracy"].value == pytest.approx(np.mean(expected), abs=1e-12)
    assert "multilabel" in str(found.to_dict()["task"]) and "accuracy" in repr(found)


def test_a_label_without_labels_is_left_out_of_the_mean() -> None:
    given = Y.astype(float)
    given[:, 2] = np.nan
    found = cal.evaluate(P, given, "brier", task="multilabel", classes=NAMES)
    assert isinstance(found, cal.MultilabelReport)
    two = [2 * ((P - Y) ** 2)[:, k].mean() for k in range(2)]
    assert found["brier"].value == pytest.approx(np.mean(two), abs=1e-12)
    assert (
        found["brier"].extra["n_labels"] == 2 and found.labels["sky"]["brier"].reason == "no_data"
    )


@pytest.mark.parametrize(
    ("scores", "labels", "more", "message"),
    [
        (P, Y[:, :2], {}, "Received labels of shape (120, 2); expected (120, 3)"),
        (P, Y[:, 0], {}, "expected one column per label, (n, n_labels)"),
        (P, Y * 2, {}, "Label '0': Received class 2"),
        (P, [[0, 1, 0], [1, 1]], {}, "labels, row 1: Received 2 values; expected 3"),
        (P * 2, Y, {}, "Received a value outside [0, 1]"),
        (P, Y, {"classes": ["a", "a", "b"]}, "2 names of labels; expected 3"),
        (P, Y, {"task": "multi"}, "expected 'multilabel'"),
        (P, Y, {"scope": "top_label"}, "scope"),
        (P, None, {"label_counts": Y}, "Remove label_counts"),
        (P, Y, {"task": None}, "pass task=multilabel"),
        (P, None, {"label_shares": P}, "Remove label_shares"),
        (P, Y, {"n_ratings": [1] * N}, "Remove n_ratings"),
        (P, Y, {"normalize": True}, "Remove normalize"),
        (P, cal.Annotations(["a"], [1]), {"ids": list(range(N))}, "Remove annotations"),
        (
            P[:3],
            [[0, 1, 0], [1, 0], [1, 1, 1]],
            {},
            "labels, row 1: Received 2 values; expected 3",
        ),
        ([[0.5, 0.1], [0.2]], [[1, 0], [0, 1]], {}, "probabilities, row 1: Received 1 values"),
        (P[:2], [[0, 1, 0], 1], {}, "labels, row 1: Received 1 values; expected 3"),
        (np.zeros((1, 1001)), np.zeros((1, 1001)), {}, "Received 1001 labels; expected 1 to 1000"),
    ],
)
def test_errors(scores: Any, labels: Any, more: Any, message: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as error:
        cal.evaluate(scores, labels, "ece", **{"task": "multilabel"} | more)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"task": np.array([1, 2])}, "task"), ({"task": "multilabel", "classes": 5}, "classes")],
)
def test_a_task_or_names_of_another_type_are_rejected(options: Any, argument: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as rejected:
        cal.evaluate(P[:2], Y[:2], **options)
    assert rejected.value.violations[0].argument == argument
