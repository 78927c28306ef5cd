"""Many slices: the worst one is not shown as miscalibrated by chance, and a miscalibrated one is found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.slice_test import calibration_test, sentence_of, slice_test
from calibrant.library_arguments import filled_view

SIZES = (5, 20, 60, 200, 600)


def drawn(seed: int, n_slices: int, shape: str, slope: float = 1.0) -> tuple[np.ndarray, ...]:
    """Calibrated slices of different sizes; the last one has 600 rows and this slope in log-odds."""
    rng = np.random.default_rng([4, seed])
    sizes = [*rng.choice(SIZES, n_slices - 1), 600]
    site = np.repeat(np.arange(n_slices), sizes)
    if shape == "spread":
        scores = rng.uniform(0.02, 0.98, len(site))
    else:
        scores = 1.0 - 10.0 ** rng.uniform(-5, -1, len(site))
    log_odds = np.log(scores / (1 - scores)) * np.where(site == n_slices - 1, slope, 1.0)
    labels = (rng.random(len(site)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return scores, labels, site


def p_values_of(scores: np.ndarray, labels: np.ndarray, site: np.ndarray) -> dict[str, dict]:
    found = {}
    for name in np.unique(site):
        rows = {"probabilities": scores[site == name], "labels": labels[site == name]}
        found[str(name)] = calibration_test(filled_view(rows, PaneQuery(), ["ece"]))
    return found


def sliced(*arguments: Any, **options: Any) -> cal.SlicedReport:
    found = cal.evaluate(*arguments, **options)
    assert isinstance(found, cal.SlicedReport)
    return found


@pytest.mark.parametrize("shape", ["spread", "confident"])
def test_of_thirty_calibrated_slices_hardly_ever_is_one_flagged(shape: str) -> None:
    """Without the rule one is below .05 in most runs: then this test would fail."""
    flagged = below = 0
    for seed in range(60):
        tests = p_values_of(*drawn(seed, 30, shape))
        flagged += bool(slice_test(tests)["flagged"])
        below += min(each["p_value"] for each in tests.values()) <= 0.05
    # 5 % of 60 is 3; more than 8 have a probability of .003.
    assert flagged <= 8 and below >= 20, (flagged, below)


def test_a_miscalibrated_slice_among_thirty_is_found_and_named() -> None:
    found = worst = 0
    for seed in range(16):
        result = slice_test(p_values_of(*drawn(seed, 30, "spread", slope=0.4)))
        found += "29" in result["flagged"]
        worst += result["worst"]["slice"] == "29"
    assert found >= 13 and worst >= 13


def test_the_largest_error_is_often_a_small_slice_and_not_the_worst() -> None:
    scores, labels, site = drawn(1, 30, "spread", slope=0.4)
    report = sliced(scores, labels, "ece,brier", by=site)
    largest = max(report.slices, key=lambda name: float(report.slices[name]["ece"]))
    assert largest != report.worst == "29" and report.flagged == ["29"]


def test_p_values_are_shares_of_exact_binomial_outcomes() -> None:
    """Ten predictions of .1 are one bin: the error is at least |k/10 - .1| for each count k."""
    rows = {"probabilities": np.full(10, 0.1), "labels": [1, 1, 1] + [0] * 7, "ids": range(10)}
    found = calibration_test(filled_view(rows, PaneQuery(), ["ece"]))
    exact = sum(math.comb(10, k) * 0.1**k * 0.9 ** (10 - k) for k in range(3, 11))
    assert found["p_value"] == pytest.approx(exact, abs=3 * math.sqrt(exact / found["n_draws"]))


def test_rows_of_a_unit_count_as_one() -> None:
    """Each label twenty times: what is strong evidence of 600 patients is none of 30."""
    rng = np.random.default_rng(2)
    scores = np.repeat(rng.uniform(0.1, 0.9, 30), 20)
    labels = np.repeat(rng.random(30) < scores[::20], 20).astype(int)
    rows = {"probabilities": scores, "labels": labels}
    alone = calibration_test(filled_view(rows, PaneQuery(), ["ece"]))["p_value"]
    units = {**rows, "units": np.arange(600) // 20}
    together = calibration_test(filled_view(units, PaneQuery(), ["ece"]))["p_value"]
    assert alone < 0.001 and together > 0.05


def test_holms_rule_equals_its_naive_version() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = {str(i): float(each) for i, each in enumerate(rng.uniform(0, 1, 12) ** 4)}
        naive, rejected = [], sorted(p, key=lambda name: p[name])
        for i, name in enumerate(rejected):
            if p[name] > 0.05 / (12 - i):
                break
            naive.append(name)
        found = slice_test({name: {"p_value": each} for name, each in p.items()})
        assert found["flagged"] == naive and found["worst"]["slice"] == rejected[0]


def test_state_gives_the_test_of_the_rows() -> None:
    scores, labels, _ = drawn(0, 5, "spread")
    rows = calibration_test(
        filled_view({"probabilities": scores, "labels": labels}, PaneQuery(), ["ece"])
    )
    assert calibration_test(View(cal.Pane.fill(scores, labels), PaneQuery())) == rows


def test_slices_without_labels_are_not_tested() -> None:
    report = sliced([0.2, 0.4, 0.9], [1, None, 1], "ece", by=["a", "b", "a"])
    assert list(report.slices) == ["a", "b"] and report.slice_test["n_tested"] == 1
    assert report.worst == "a" and report.flagged == []
    assert sentence_of(slice_test({}), 0) == "0 of 0 subgroups were tested together."


def test_reports_of_slices_are_those_of_their_rows() -> None:
    scores, labels, site = drawn(3, 6, "spread")
    names = np.array([f"site {each}" for each in site])
    report = sliced(scores, labels, "ece,accuracy", by=names, ids=np.arange(len(site)))
    assert report["ece"].value == cal.ece(scores, labels).value
    for name in report.slices:
        mine = names == name
        ids = np.arange(len(site))[mine]
        own = cal.evaluate(scores[mine], labels[mine], "ece,accuracy", ids=ids)
        assert report.slices[name]["ece"].value == own["ece"].value
        assert report.slices[name]["ece"].interval == own["ece"].interval
    assert set(report.to_dict()["slices"]) == set(names)
    assert "tested together" in repr(report)


@pytest.mark.parametrize(
    ("by", "more"),
    [
        (["a"], {}),
        (["a", None, "b"], {}),
        ([1.5, 2.5, 3.5], {}),
        ([str(i) for i in range(1001)], {}),
        (["a", "b", "c"], {"task": "multilabel"}),
    ],
)
def test_what_names_no_slices_is_refused(by: list, more: dict) -> None:
    n = max(len(by), 3)
    with pytest.raises(cal.CalibrationInputError) as caught:
        cal.evaluate(np.full(n, 0.5), [1] * n, "ece", by=by, **more)
    assert caught.value.violations[0].pointer.startswith("/by"), caught.value
