"""Errors of cases: tables against rows, averages against naive ones, missing classes, composites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import calibrant as cal
from calibrant import CalibrationInputError, PaneSpec
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import POLICIES
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import compute_metrics
from calibrant.report import score_batch
from calibrant.segmentation.case_errors import ERRORS, case_errors
from calibrant.segmentation.case_report import cases_of
from tests.calibrant.case_rows import (
    batch_of,
    naive_errors,
    naive_micro,
    pane_of,
    rows,
    some_parts,
    view_of,
)

# Numbers.


@pytest.mark.parametrize(
    ("bins", "membership"), [(5, "hard"), (20, "hard"), (24, "hard"), (10, "soft"), (20, "soft")]
)
@pytest.mark.parametrize("edges", ["right", "left"])
def test_errors_of_each_case_and_class_are_those_of_the_rows(
    bins: int, membership: str, edges: Any
) -> None:
    parts = some_parts(3)
    cases = case_errors(
        view_of(pane_of(batch_of(parts)), bins, edges, membership=membership, background="in")
    )
    for name, error in ERRORS.items():
        values = error(cases.counted)
        for i, (p, labels) in enumerate(parts.values()):
            for k in range(3):
                expected = naive_errors(p[:, k], labels == k, bins, membership, edges)[name]
                assert values[i, k] == pytest.approx(expected, abs=1e-9), (name, i, k)


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_macro_micro_and_pooled(membership: str) -> None:
    parts = some_parts()
    answers = compute_metrics(
        view_of(pane_of(batch_of(parts)), 10, membership=membership),
        ["ml1_ece", "ml1_ace", "ml1_mce"],
    )
    every = {k: np.concatenate([p[:, k] for p, _ in parts.values()]) for k in (1, 2)}
    hits = {k: np.concatenate([y == k for _, y in parts.values()]) for k in (1, 2)}
    for name in ("ece", "ace", "mce"):
        answer = answers[f"ml1_{name}"]
        by_case = [
            np.mean([naive_errors(p[:, k], y == k, 10, membership)[name] for k in (1, 2)])
            for p, y in parts.values()
        ]
        assert answer["value"] == answer["macro"] == pytest.approx(np.mean(by_case), abs=1e-9)
        assert answer["sd"] == pytest.approx(np.std(by_case), abs=1e-9)
        assert answer["quantiles"]["median"] == pytest.approx(np.median(by_case), abs=1e-9)
        pooled = [naive_errors(every[k], hits[k], 10, membership)[name] for k in (1, 2)]
        assert answer["micro_pooled"] == pytest.approx(np.mean(pooled), abs=1e-9)
        micro = [naive_micro(parts, k, 10, membership)[name] for k in (1, 2)]
        assert answer["micro"] == pytest.approx(np.mean(micro), abs=1e-9)
        assert answer["interval"] is None and answer["interval_reason"] == "too_few_cases"


@pytest.mark.parametrize("n", [9, 10, 40])
def test_the_interval_of_a_mean_over_cases(n: int) -> None:
    """Outer ends of Student's interval, and of that with a further case at the extreme; ten cases or more."""
    rng = np.random.default_rng(8)
    score, case = rng.beta(0.5, 1.0, 20 * n), np.repeat(np.arange(n), 20)
    labels = (rng.random(20 * n) < score**2).astype(int)
    slugs = ["dice", "ml1_ece", "ml1_ace", "ml1_mce"]
    found = cal.evaluate(score, labels, slugs, cases=case)
    p = np.stack([1 - score, score], axis=1)
    parts = {str(i): (p[case == i], labels[case == i]) for i in range(n)}
    view = view_of(pane_of(batch_of(parts), spec=PaneSpec("segmentation", 2)), 15)
    for slug in slugs:
        shares = case_errors(view).by_case(slug.removeprefix("ml1_"))
        if n < 10:
            assert found[slug].interval is None
            assert found[slug].extra["interval_reason"] == "too_few_cases"
            continue
        sides = [[*shares], [*shares, min(shares)], [*shares, max(shares)]]
        errors = [np.std(x, ddof=1) / np.sqrt(n) for x in sides]
        ends = [
            stats.t.interval(0.95, n - 1, np.mean(x), e) for x, e in zip(sides, errors, strict=True)
        ]
        low, high = min(ends[0][0], ends[1][0]), max(ends[0][1], ends[2][1])
        assert found[slug].interval == pytest.approx([max(low, 0.0), min(high, 1.0)], abs=1e-9)


def test_equal_cases_have_no_interval() -> None:
    """Ten perfect masks had the interval 1 to 1."""
    case = np.repeat(np.arange(10), 3)
    dice = cal.evaluate([0.9, 0.2, 0.8] * 10, [1, 0, 1] * 10, ["dice"], cases=case)["dice"]
    assert dice.value == 1.0 and dice.interval is None
    assert dice.extra["interval_reason"] == "equal_cases"


@pytest.mark.parametrize("policy", POLICIES)
def test_label_policies_and_weights(policy: str) -> None:
    rng = np.random.default_rng(4)
    p, _ = rows(4, 80)
    labels = [rng.integers(0, 3, rng.integers(1, 5)).tolist() for _ in range(80)]
    weights = rng.choice([0.5, 1.0, 2.0], 80)
    batch = batch_of({"a": (p, np.array(labels, dtype=object))}, weights=weights)
    cases = case_errors(view_of(pane_of(batch), 10, raters=policy, background="in"))
    ratings = batch.label_counts
    if policy == "pooled":
        hits, weight = ratings.astype(float), weights * ratings.sum(axis=1)
    else:
        weight = weights
        chosen = batch.majority[0] if policy == "majority" else batch.chosen_rating
        hits = (
            ratings / ratings.sum(axis=1, keepdims=True) if policy == "mean" else np.eye(3)[chosen]
        )
    for k in range(3):
        at = equal_width_bin(p[:, k], 10)
        total = np.bincount(at, weight, 10)
        gap = np.abs(
            np.bincount(at, weights * hits[:, k], 10) - np.bincount(at, weight * p[:, k], 10)
        )
        assert ERRORS["ece"](cases.bins)[0, k] == pytest.approx(gap.sum() / total.sum(), abs=1e-9)


def test_soft_memberships_of_a_case_add_up_to_its_rows() -> None:
    parts = some_parts(2)
    bins = case_errors(view_of(pane_of(batch_of(parts)), 15, membership="soft")).bins
    sizes = [len(p) for p, _ in parts.values()]
    np.testing.assert_allclose(
        bins.weight.sum(axis=2), np.repeat(sizes, 3).reshape(2, 3), rtol=1e-12
    )
    np.testing.assert_allclose(bins.correct.sum(axis=2), bins.positives, atol=1e-9)


@pytest.mark.parametrize("edges", ["right", "left"])
def test_of_one_case_with_background_the_pooled_error_is_the_classwise_one(edges: Any) -> None:
    pane = pane_of(batch_of({"only": rows(7, 400)}))
    answers = compute_metrics(
        view_of(pane, 15, edges, background="in", average="micro_pooled"),
        ["ml1_ece", "classwise_ece"],
    )
    assert answers["ml1_ece"]["value"] == pytest.approx(
        answers["classwise_ece"]["value"], abs=1e-12
    )
    assert answers["ml1_ece"]["macro"] == pytest.approx(
        answers["classwise_ece"]["value"], abs=1e-12
    )


def test_perfect_cases_have_no_error_and_full_dice() -> None:
    labels = np.array([0, 1, 2, 1, 0, 2])
    answer = cases_of(
        view_of(pane_of(batch_of({"a": (np.eye(3)[labels], labels)})), 20, background="in")
    )
    assert [
        answer["summary"][name]["macro"]["value"] for name in ("ece", "ace", "mce", "dice")
    ] == [0, 0, 0, 1]


def test_dice_is_of_the_top_class() -> None:
    parts = some_parts()
    answer = cases_of(view_of(pane_of(batch_of(parts)), 10, background="in"))
    for row, (p, labels) in zip(answer["cases"], parts.values(), strict=True):
        top = p.argmax(axis=1)
        for k in range(3):
            both = int(((top == k) & (labels == k)).sum())
            assert row["true_positive"][k] == both
            assert row["false_positive"][k] == (top == k).sum() - both
            assert row["false_negative"][k] == (labels == k).sum() - both
            assert row["dice"]["by_class"][k] == pytest.approx(
                2 * both / ((top == k).sum() + (labels == k).sum())
            )


# Missing classes, composites.


def test_a_class_without_a_rating_is_kept_or_left_out_as_asked() -> None:
    parts = some_parts()
    pane = pane_of(batch_of(parts))
    values = {}
    for missing in ("include", "skip_class", "skip_case"):
        answer = compute_metrics(view_of(pane, 10, missing=missing), ["ml1_ace"])["ml1_ace"]
        values[missing] = answer["value"]
        assert answer["n_missing"] == 1
        assert answer["n_cases_used"] == (4 if missing == "skip_case" else 5)
    errors = {
        name: [naive_errors(p[:, k], y == k, 10, "hard")["ace"] for k in (1, 2)]
        for name, (p, y) in parts.items()
    }
    means = {name: float(np.mean(pair)) for name, pair in errors.items()}
    assert values["include"] == pytest.approx(np.mean(list(means.values())), abs=1e-9)
    assert values["skip_class"] == pytest.approx(
        np.mean(list((means | {"case-1": errors["case-1"][0]}).values())), abs=1e-9
    )
    assert values["skip_case"] == pytest.approx(
        np.mean([means[n] for n in means if n != "case-1"]), abs=1e-9
    )


def test_where_every_case_is_skipped_there_is_no_number() -> None:
    p, _ = rows(1, 30)
    pane = pane_of(batch_of({"a": (p, np.zeros(30, int))}))
    answer = compute_metrics(view_of(pane, 10, missing="skip_case"), ["ml1_ece"])["ml1_ece"]
    assert answer["value"] is None
    assert answer["reason"] == "no_case_counts"
    assert (
        cases_of(view_of(pane, 10, missing="skip_class"))["summary"]["ece"]["macro"]["value"]
        is None
    )


def test_composites_come_from_rows() -> None:
    parts = some_parts()
    batch = batch_of(parts)
    answers = score_batch(
        batch,
        {
            "metrics": ["ml1_ece"],
            "bins": 7,
            "binning": "soft",
            "composites": {"whole": [1, 2], "two": [2]},
        },
    )
    answer = answers["metrics"]["ml1_ece"]
    expected = [
        np.mean([
            naive_errors(p[:, 1] + p[:, 2], y > 0, 7, "soft")["ece"], naive_errors(p[:, 2], y == 2, 7, "soft")["ece"]
        ])
        for p, y in parts.values()
    ]  # fmt: skip
    assert answer["classes"] == ["whole", "two"]
    assert answer["membership"] == "soft"
    assert answer["value"] == pytest.approx(np.mean(expected), abs=1e-9)
    with pytest.raises(NoResultError, match="needs_raw_rows"):
        case_errors(view_of(pane_of(batch), 10, composites={"whole": [1, 2]}))
    with pytest.raises(CalibrationInputError, match="composite"):
        case_errors(view_of(pane_of(batch), 10, composites={"whole": [3]}))


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_rows_and_kept_tables_agree(membership: str) -> None:
    batch = batch_of(some_parts())
    pane = pane_of(batch)
    pane_query = PaneQuery(bins=20, options={"membership": membership})
    kept, raw = cases_of(View(pane, pane_query)), cases_of(View(pane, pane_query, batch))
    assert raw["summary"]["ace"]["macro"]["value"] == pytest.approx(
        kept["summary"]["ace"]["macro"]["value"], abs=1e-9
    )
    assert raw["histogram"]["counts"] == kept["histogram"]["counts"]
    assert [row["case"] for row in raw["cases"]] == [row["case"] for row in kept["cases"]]
