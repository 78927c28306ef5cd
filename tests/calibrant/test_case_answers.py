"""What is said of cases: the reliability histogram, boxes, one case, pairs of models."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from calibrant import CalibrationInputError
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import NoResultError
from calibrant.segmentation.case_comparison import compare_case_errors, compare_cases, permutation_p
from calibrant.segmentation.case_errors import ERRORS, case_errors
from calibrant.segmentation.case_report import box, case_reliability, cases_of
from tests.calibrant.case_rows import (
    batch_of,
    golden_batch,
    naive_errors,
    pane_of,
    rows,
    some_parts,
    view_of,
)


def test_the_reliability_histogram_counts_cases() -> None:
    parts = some_parts()
    answer = cases_of(view_of(pane_of(batch_of(parts)), 10), frequency_bins=5)["histogram"]
    counts = np.zeros((2, 10, 5), int)
    for p, labels in parts.values():
        for k in (1, 2):
            at = equal_width_bin(p[:, k], 10)
            for m in np.unique(at):
                rate = (labels[at == m] == k).mean()
                counts[k - 1, m, min(int(rate * 5), 4)] += 1
    assert answer["counts"] == counts.tolist()
    shares = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    known = (counts.sum(axis=2) > 0).sum(axis=0)
    np.testing.assert_allclose(
        answer["mean"], shares.sum(axis=0) / np.maximum(known, 1)[:, None], atol=1e-12
    )
    with pytest.raises(CalibrationInputError):
        cases_of(view_of(pane_of(batch_of(parts)), 10), frequency_bins=0)


def test_bins_together_and_boxes_by_case() -> None:
    parts = some_parts()
    answer = cases_of(view_of(pane_of(batch_of(parts)), 10, background="in"))["reliability"]
    p, labels = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
    at, hits = equal_width_bin(p.ravel(), 10), np.eye(3)[labels].ravel()
    for m, row in enumerate(answer):
        assert row["weight"] == pytest.approx((at == m).sum())
        assert row["observed_frequency"] == pytest.approx(hits[at == m].mean())
        assert row["mean_confidence"] == pytest.approx(p.ravel()[at == m].mean())
        assert row["box"]["n"] <= 5


def test_boxes_leave_out_bins_of_a_case_with_few_samples() -> None:
    """As the paper does with fewer than 50; by hand, case by case."""
    parts = some_parts()
    view = view_of(pane_of(batch_of(parts)), 10, background="in")
    least = 9
    view = view.with_query(replace(view.pane_query, min_count=least))
    rates: dict[int, list[float]] = {m: [] for m in range(10)}
    weight, left_out = np.zeros(10), np.zeros(10)
    for p, labels in parts.values():
        at, hits = equal_width_bin(p.ravel(), 10), np.eye(3)[labels].ravel()
        for m in range(10):
            n = (at == m).sum()
            if n >= least:
                rates[m].append(hits[at == m].mean())
                weight[m] += n
            left_out[m] += 0 < n < least
    assert left_out.any() and any(rates.values())
    for m, row in enumerate(cases_of(view)["reliability"]):
        assert (row["weight"], row["n_left_out"]) == (weight[m], left_out[m])
        if rates[m]:
            assert row["box"]["n"] == len(rates[m])
            assert row["box"]["median"] == pytest.approx(np.median(rates[m]))
        else:
            assert row["box"] is None and row["observed_frequency"] is None


def test_one_case_in_detail() -> None:
    parts = some_parts()
    view = view_of(pane_of(batch_of(parts)), 10)
    detail = case_reliability(view, "case-2")
    p, labels = parts["case-2"]
    assert [one["class"] for one in detail["classes"]] == ["1", "2"]
    assert detail["classes"][0]["ace"] == pytest.approx(
        naive_errors(p[:, 1], labels == 1, 10, "hard")["ace"]
    )
    assert sum(row["weight"] for row in detail["classes"][1]["table"]) == len(p)
    with pytest.raises(NoResultError, match="unknown_case"):
        case_reliability(view, "nobody")


def test_box_numbers() -> None:
    assert box(np.array([np.nan])) is None
    one = box(np.array([3.0]))
    assert one is not None
    assert one["lower_whisker"] == one["median"] == one["upper_whisker"] == 3.0
    some = box(np.array([1.0, 2.0, 3.0, 4.0, 100.0, np.nan]))
    assert some is not None
    assert (some["lower_quartile"], some["median"], some["upper_quartile"]) == (2.0, 3.0, 4.0)
    assert (some["lower_whisker"], some["upper_whisker"], some["outliers"]) == (1.0, 4.0, [100.0])


def test_pairs_of_models() -> None:
    rng = np.random.default_rng(8)
    against = {f"c{i}": float(v) for i, v in enumerate(rng.random(20))}
    values: dict[str, float | None] = {
        name: v - 0.05 + 0.05 * float(rng.normal()) for name, v in against.items()
    }
    values |= {"c0": None, "extra": 0.3}
    answer = compare_cases(values, against)
    names = [f"c{i}" for i in range(1, 20)]
    difference = np.array([values[n] - against[n] for n in names])  # type: ignore[operator]
    t = difference.mean() / (difference.std(ddof=1) / np.sqrt(19))
    assert answer["t"] == pytest.approx(t)
    assert answer["p"] == pytest.approx(2 * stats.t.sf(abs(t), 18))
    assert answer["difference"] == pytest.approx(answer["mean"] - answer["against"])
    assert (answer["n"], answer["only_there"], answer["only_here"]) == (19, ["c0"], ["extra"])
    assert answer["stars"] == "**"
    assert answer["wilcoxon_p"] == pytest.approx(signed_ranks_p(difference), abs=1e-12)
    assert answer["permutation_p"] == pytest.approx(answer["p"], abs=0.01)
    back = compare_cases(against, values)
    for name in ("p", "wilcoxon_p", "permutation_p"):
        assert back[name] == answer[name]
    assert back["t"] == -answer["t"]
    assert compare_cases({"a": 1.0}, {"a": 2.0})["reason"] == "too_few_cases"
    assert (
        compare_cases({"a": 1.0, "b": 2.0}, {"a": 1.5, "b": 2.5})["reason"] == "constant_difference"
    )


def signed_ranks_p(difference: np.ndarray) -> float:
    """Exact p of Wilcoxon's signed ranks by counting the patterns of signs that give each sum of ranks."""
    ranks = stats.rankdata(np.abs(difference)).astype(int)
    ways = np.array([1.0])
    for rank in ranks:
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    least = min(ranks[difference > 0].sum(), ranks[difference < 0].sum())
    return float(min(1.0, 2.0 * ways[: least + 1].sum() / ways.sum()))


@pytest.mark.parametrize("n", [2, 5, 9])
def test_signs_are_permuted_one_by_one(n: int) -> None:
    difference = np.random.default_rng(n).normal(0.4, 1.0, n)
    sums = [
        abs(sum(s * d for s, d in zip(signs, difference, strict=True)))
        for signs in product((1, -1), repeat=n)
    ]
    expected = np.mean([each >= abs(difference.sum()) - 1e-12 for each in sums])
    assert permutation_p(difference) == pytest.approx(expected)


def test_models_are_compared_by_measure_and_class() -> None:
    truth = {f"s{i}": rows(i, 60) for i in range(6)}
    blunt = {
        name: (np.clip(0.8 * p + 0.2 / 3, 0, 1), y)
        for name, (p, y) in truth.items()
        if name != "s3"
    }
    options = {"missing": "skip_class"}
    mine, theirs = (
        case_errors(view_of(pane_of(batch_of(each)), **options)) for each in (truth, blunt)
    )
    found = compare_case_errors(mine, theirs)
    assert set(found) == {*ERRORS, "dice"}
    for name, one in found.items():
        assert (one["n"], one["only_here"], one["only_there"]) == (5, ["s3"], [])
        sides = [dict(zip(each.names, each.by_case(name), strict=True)) for each in (mine, theirs)]
        expected = np.mean([sides[0][case] - sides[1][case] for case in sides[1]])
        assert one["difference"] == pytest.approx(expected)
        assert [each["class"] for each in one["by_class"]] == ["1", "2"]
        together = np.mean([each["difference"] for each in one["by_class"]])
        assert together == pytest.approx(expected)


@pytest.mark.parametrize(
    "options", [{"average": "mean"}, {"membership": "fuzzy"}, {"background": "maybe"}, {"missing": "drop"},
    {"composites": [1]}]
)  # fmt: skip
def test_options_out_of_range_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(CalibrationInputError):
        case_errors(view_of(pane_of(golden_batch()), **options))


def test_bins_that_tables_do_not_give_are_rejected() -> None:
    answer = cases_of(view_of(pane_of(golden_batch()), 16))
    assert answer["reason"] == "bins_not_exact"
    assert cases_of(view_of(pane_of(golden_batch()), 24))["cases"]
    assert (
        cases_of(view_of(pane_of(golden_batch()), 24, membership="soft"))["reason"]
        == "bins_not_exact"
    )
