"""What needs whole predictions: the canonical error, the kernel test, statistics of several raters; and order p."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import dirichlet

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators.sample import MAX_CLASSES
from calibrant.core.available_rows import available_rows, drawn_labels
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.metrics.skce import N_DRAWS
from calibrant.raters.label_statistics import STATISTICS
from tests.calibrant.reference import POLICIES, Row, rows_of, scored
from tests.oracle.u_statistics import u_statistic

SLUGS = ("canonical_ce", "skce", "rater_statistic")


def batch_of(
    n: int = 30, seed: int = 0, n_classes: int = 3, sharp: float = 1.3, **columns: Any
) -> Batch:
    rng = np.random.default_rng(seed)
    z = rng.dirichlet(np.ones(n_classes), n)
    q = z**sharp / (z**sharp).sum(axis=1, keepdims=True)
    y = rng.multinomial(rng.integers(1, 6, n), q)
    return Batch.from_columns({"probabilities": z, "label_counts": y, **columns}).batch


def view_of(
    batch: Batch, raw: bool = True, pane_query: PaneQuery | None = None, **options: Any
) -> View:
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    complete = pane_query or PaneQuery()
    return View(pane, PaneQuery(**(vars(complete) | {"options": options})), batch if raw else None)


def asked(
    batch: Batch, slug: str, raw: bool = True, pane_query: PaneQuery | None = None, **options: Any
) -> dict[str, Any]:
    return compute_metrics(view_of(batch, raw, pane_query, **options), [slug])[slug]


def labels_of(row: Row, policy: str) -> tuple[float, list[float]]:
    """Weight of a row, and share of each class in its label."""
    weight = row.weight * row.samples(policy)
    return weight, [row.share(k, policy) / row.samples(policy) for k in range(len(row.p))]


# Order p.


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 3.0, 7.0])
@pytest.mark.parametrize("raters", POLICIES)
def test_order_p_equals_the_naive_version(order: float, raters: str) -> None:
    batch = batch_of(60, weights=np.random.default_rng(1).choice([0.5, 1.0, 2.0], 60))
    bins: dict[int, list[tuple[float, float, float]]] = {}
    for row, score, samples, hits in scored(rows_of(batch), "top_label", raters):
        bins.setdefault(math.ceil(score * 8), []).append(
            (row.weight * samples, score, row.weight * hits)
        )
    total = top = 0.0
    for part in bins.values():
        weight = math.fsum(w for w, _, _ in part)
        gap = math.fsum(h - w * s for w, s, h in part) / weight
        total, top = total + weight, top + weight * abs(gap) ** order
    for raw in (True, False):
        found = asked(batch, "lp_ece", raw, PaneQuery(bins=8, raters=raters), order=order)
        assert found["value"] == pytest.approx((top / total) ** (1 / order), abs=1e-11)
        assert found["order"] == order


def test_order_p_lies_between_the_errors_that_have_names() -> None:
    batch = batch_of(400)
    view = {p: asked(batch, "lp_ece", False, order=p) for p in (1.0, 2.0, 100.0)}
    for p, slug in ((1.0, "ece"), (2.0, "rmsce")):
        named = asked(batch, slug, False)
        assert view[p]["value"] == pytest.approx(named["value"], abs=1e-14)
        assert view[p]["interval"] == pytest.approx(named["interval"], abs=1e-12)
        assert view[p]["null_q95"] == pytest.approx(named["null_q95"], abs=1e-12)
    largest = asked(batch, "mce", False)["value"]
    assert view[1.0]["value"] < view[2.0]["value"] < view[100.0]["value"] < largest
    assert view[100.0]["value"] > 0.9 * largest


# The canonical error.


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("bandwidth", [0.02, 0.3])
def test_canonical_error_equals_the_naive_version(raters: str, norm: int, bandwidth: float) -> None:
    batch = batch_of(24, weights=np.random.default_rng(2).choice([0.5, 2.0], 24))
    rows = [(np.array(row.p), *labels_of(row, raters)) for row in rows_of(batch)]
    total = complete = 0.0
    for i, (p, weight, _) in enumerate(rows):
        top, bottom = np.zeros(3), 0.0
        for j, (centre, other, share) in enumerate(rows):
            if i != j:
                density = dirichlet.pdf(p, centre / bandwidth + 1) * other
                top, bottom = top + density * np.array(share), bottom + density
        total += weight * (np.abs(top / bottom - p) ** norm).sum()
        complete += weight
    found = asked(
        batch, "canonical_ce", True, PaneQuery(raters=raters), norm=norm, bandwidth=bandwidth
    )
    assert found["value"] == pytest.approx((total / complete) ** (1 / norm), abs=1e-10)
    assert (found["source"], found["n_sample"], found["bandwidth"]) == ("rows", 24, bandwidth)


def test_canonical_error_sees_what_confidence_does_not() -> None:
    # The top label is right as often as it says; which of the others comes instead is foretold wrongly.
    rng = np.random.default_rng(3)
    z = np.tile([[0.6, 0.3, 0.1]], (800, 1))[:, [0, 1, 2]]
    labels = rng.choice(3, 800, p=[0.6, 0.1, 0.3])
    batch = Batch.from_columns({"probabilities": z, "labels": labels}).batch
    found = asked(batch, "canonical_ce")
    assert found["value"] == pytest.approx(0.4, abs=0.06)
    assert found["value"] > found["null_q95"]
    ece = asked(batch, "ece")
    assert ece["value"] < ece["null_q95"]
    test = asked(batch, "skce")
    assert test["p_value"] == pytest.approx(1 / (1 + N_DRAWS))


def test_sharp_rows_and_many_classes_are_safe() -> None:
    eye = np.eye(4)[np.arange(12) % 4]
    batch = Batch.from_columns({"probabilities": eye, "labels": np.arange(12) % 4}).batch
    assert asked(batch, "canonical_ce")["value"] == pytest.approx(0.0, abs=1e-9)
    assert asked(batch, "skce")["value"] == pytest.approx(0.0, abs=1e-12)
    far = Batch.from_columns({"probabilities": np.eye(200)[:3], "labels": [0, 1, 2]}).batch
    for slug in SLUGS:
        json.dumps(asked(far, slug), allow_nan=False)


# The kernel test.


@pytest.mark.parametrize(
    ("labels", "number"), [([0, 1], 0.0), ([0, 0], 0.0), ([1, 0], -2 * math.exp(-math.sqrt(2)))]
)
def test_kernel_error_of_two_predictions(labels: list[int], number: float) -> None:
    batch = Batch.from_columns(
        {"probabilities": np.eye(2), "labels": labels}, task="multiclass"
    ).batch
    assert asked(batch, "skce", kernel_width=1.0)["value"] == pytest.approx(number, abs=1e-12)


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("units", [False, True])
def test_kernel_error_equals_the_naive_version(raters: str, units: bool) -> None:
    rng = np.random.default_rng(4)
    columns: dict[str, Any] = {"weights": rng.choice([0.5, 2.0], 30)}
    if units:
        columns["units"] = [f"u{k}" for k in rng.integers(0, 12, 30)]
    batch = batch_of(30, **columns)
    rows = [(np.array(row.p), *labels_of(row, raters), row.unit) for row in rows_of(batch)]
    apart = [math.dist(a[0], b[0]) for a, b in itertools.permutations(rows, 2) if a[3] != b[3]]
    for width in (0.0, 0.4):
        scale = width or float(np.median(apart))
        top = bottom = 0.0
        for (p, w, y, u), (q, v, x, t) in itertools.permutations(rows, 2):
            if u != t:
                top += (
                    w
                    * v
                    * math.exp(-math.dist(p, q) / scale)
                    * float((np.array(y) - p) @ (np.array(x) - q))
                )
                bottom += w * v
        found = asked(batch, "skce", True, PaneQuery(raters=raters), kernel_width=width)
        assert found["value"] == pytest.approx(top / bottom, abs=1e-11)
        assert found["kernel_width"] == pytest.approx(scale)


def test_kernel_error_is_unbiased_and_its_test_keeps_its_level() -> None:
    rng = np.random.default_rng(5)
    values, p_values, inside = [], [], 0
    for _ in range(120):
        z = rng.dirichlet(np.ones(3), 40)
        units = np.repeat(np.arange(20), 2)
        fate = rng.random(20)[units]
        labels = (np.cumsum(z, axis=1) < fate[:, None]).sum(axis=1)
        columns = {"probabilities": z, "labels": labels, "units": [f"u{k}" for k in units]}
        found = asked(Batch.from_columns(columns).batch, "skce")
        values.append(found["value"])
        p_values.append(found["p_value"])
        inside += found["interval"][0] <= 0.0 <= found["interval"][1]
    assert abs(np.mean(values)) < 3.5 * np.std(values) / np.sqrt(120)
    # Six are expected at 5 %; fourteen or more have a chance of 3e-3. The mean of uniform numbers has sd 0.026.
    assert (np.array(p_values) <= 0.05).sum() <= 13
    assert abs(np.mean(p_values) - 0.5) < 0.1
    assert inside >= 105


def test_drawn_labels_follow_the_predictions_and_units() -> None:
    batch = batch_of(5, units=["a", "a", "b", "c", "c"])
    rows = available_rows(view_of(batch), 10)
    assert rows is not None
    drawn = drawn_labels(rows, 20_000, 0)
    for k in range(3):
        np.testing.assert_allclose((drawn == k).mean(axis=0), rows.probabilities[:, k], atol=0.015)
    same = Batch.from_columns(
        {"probabilities": [[0.5, 0.3, 0.2]] * 4, "labels": [0, 1, 2, 0], "units": list("aabb")}
    ).batch
    twins = available_rows(view_of(same), 10)
    assert twins is not None
    drawn = drawn_labels(twins, 500, 0)
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert 0.2 < (drawn[:, 0] == drawn[:, 2]).mean() < 0.6


# Statistics of several raters.

DEFINITIONS = {
    "disagreement": lambda counts: float(max(counts) < sum(counts)),
    "all_differ": lambda counts: float(max(counts) < 2),
    "majority": lambda counts: float(2 * max(counts) > sum(counts)),
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("order", [2, 3, 4])
def test_statistics_equal_their_definitions(name: str, order: int) -> None:
    rng = np.random.default_rng(order)
    y = rng.integers(0, 4, (40, 4))
    observed, predicted = STATISTICS[name]
    np.testing.assert_allclose(
        observed(y, order), u_statistic(y, DEFINITIONS[name], order), atol=1e-12
    )
    z = rng.dirichlet(np.ones(4), 6)
    for row, found in zip(z, predicted(z, order), strict=True):
        chance = math.fsum(
            math.prod(row[list(labels)])
            * DEFINITIONS[name](tuple(np.bincount(labels, minlength=4)))
            for labels in itertools.product(range(4), repeat=order)
        )
        assert found == pytest.approx(chance, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "order"), [("disagreement", 2), ("disagreement", 3), ("majority", 3)]
)
def test_losses_of_statistics_equal_the_naive_version(name: str, order: int) -> None:
    batch = batch_of(80)
    phi = u_statistic(batch.label_counts, DEFINITIONS[name], order)
    d = STATISTICS[name][1](batch.probabilities, order)
    used = ~np.isnan(phi)
    loss = np.mean((phi[used] - d[used]) ** 2 + phi[used] * (1 - phi[used]))
    found = asked(
        batch, "rater_statistic", True, PaneQuery(bins=10), statistic=name, n_raters=order
    )
    assert found["value"] == pytest.approx(loss, abs=1e-12)
    assert found["n_too_few_votes"] == (~used).sum() > 0
    plugin = 0.0
    for b in range(10):
        i = used & (np.clip(np.ceil(d * 10), 1, 10) == b + 1)
        if i.any():
            plugin += i.sum() * (phi[i].mean() - d[i].mean()) ** 2 / used.sum()
    assert found["calibration_loss_plugin"] == pytest.approx(plugin, abs=1e-12)


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("raw", [True, False])
def test_two_raters_disagreement_is_that_of_the_state(raters: str, raw: bool) -> None:
    for weights in (None, np.random.default_rng(2).choice([0.5, 1.0, 3.0], 90)):
        batch = batch_of(90) if weights is None else batch_of(90, weights=weights)
        complete = asked(batch, "rater_statistic", raw, PaneQuery(raters=raters))
        held, ce = (
            asked(batch, slug, False)["value"] for slug in ("disagreement_loss", "disagreement_ce")
        )
        assert complete["value"] == pytest.approx(held, abs=1e-12)
        assert complete["ce"] == pytest.approx(ce, abs=1e-9)


def test_loss_of_a_statistic_is_unbiased() -> None:
    rng = np.random.default_rng(6)
    q = rng.dirichlet(np.ones(3), 50)
    z = 0.7 * q + 0.1
    for raters, name, order in ((3, "majority", 3), (5, "majority", 3), (5, "disagreement", 3)):
        chance = STATISTICS[name][1]
        truth = (
            (chance(q, order) - chance(z, order)) ** 2 + chance(q, order) * (1 - chance(q, order))
        ).mean()
        phi = np.array([STATISTICS[name][0](rng.multinomial(raters, q), order) for _ in range(800)])
        d = chance(z, order)
        seen = ((phi - d) ** 2 + phi * (1 - phi)).mean(axis=1)
        assert abs(seen.mean() - truth) < 4 * seen.std() / np.sqrt(800)


def test_too_few_ratings_are_rejected() -> None:
    batch = Batch.from_columns({"probabilities": [[0.5, 0.5, 0.0]] * 3, "labels": [0, 1, 0]}).batch
    assert asked(batch, "rater_statistic")["reason"] == "too_few_votes"


# Laws.


@pytest.mark.parametrize("slug", SLUGS)
def test_the_kept_sample_answers_as_the_rows_do(slug: str) -> None:
    batch = batch_of(60, ids=[f"p{i}" for i in range(60)])
    raw, kept = asked(batch, slug), asked(batch, slug, False)
    assert kept["value"] == pytest.approx(raw["value"], abs=1e-12)
    assert (raw["source"], kept["source"], kept["n_sample"]) == ("rows", "sample", 60)


@pytest.mark.parametrize("slug", SLUGS)
def test_predictions_that_came_twice_are_two_rows(slug: str) -> None:
    half = batch_of(20)  # without names, equal rows are one entry of the sample
    columns = {"probabilities": half.probabilities, "label_counts": half.label_counts}
    both = {name: np.concatenate([column, column]) for name, column in columns.items()}
    raw = asked(Batch.from_columns(both).batch, slug)
    kept = asked(Batch.from_columns(both).batch, slug, False)
    assert kept["value"] == pytest.approx(raw["value"], abs=1e-12)
    assert kept["n_sample"] == 40


@pytest.mark.parametrize("slug", SLUGS)
def test_a_part_of_the_sample_says_so_and_estimates_the_same(slug: str) -> None:
    batch = batch_of(4000, sharp=3.0)
    kept = asked(batch, slug, False)
    assert kept["n_sample"] < 1001 < kept["n_drawn_from"] == 4000
    complete = asked(batch, slug)
    assert kept["value"] == pytest.approx(complete["value"], rel=0.5, abs=0.01)


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("raw", [True, False])
def test_few_or_no_predictions(slug: str, raw: bool) -> None:
    one = Batch.from_columns(
        {"probabilities": [[0.2, 0.3, 0.5]], "label_counts": [[1, 0, 1]]}
    ).batch
    found = asked(one, slug, raw)
    json.dumps(found, allow_nan=False)
    assert found["value"] is not None or found["reason"].startswith("too_few")
    unlabelled = Batch.from_columns({"probabilities": [[0.2, 0.3, 0.5]], "labels": [None]}).batch
    assert asked(unlabelled, slug, False)["reason"] == "no_data"
    beyond = MAX_CLASSES + 1
    many = Pane(PaneSpec("multiclass", beyond))
    many.fill_batch(
        Batch.from_columns({"probabilities": np.eye(beyond)[:2], "labels": [0, 1]}).batch
    )
    assert compute_metrics(View(many, PaneQuery()), [slug])[slug]["reason"] == "not_sampled"
