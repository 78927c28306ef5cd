"""Null reference of named units: as calibrated models of dependent units, and far below the worst case."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.null_reference import N_DRAWS, quantiles_of
from calibrant.inference.unit_null import unit_gaps, unit_null
from calibrant.metrics import compute_metrics

N_CASES, N_PIXELS = 40, 200


def view_of(rng: np.random.Generator, n_units: int, size: int, slope: float, own: bool) -> View:
    """Units whose predictions share a tenth of their luck; `own`: each prediction has its own score."""
    score = rng.beta(0.7, 2.2, n_units * size if own else n_units)
    score = score if own else np.repeat(score, size)
    odds = slope * np.log(np.maximum(score, 1e-12) / np.maximum(1.0 - score, 1e-12))
    shared = np.repeat(rng.random(n_units), size)
    luck = np.where(rng.random(len(score)) < 0.1, shared, rng.random(len(score)))
    units = np.repeat([f"u{i}" for i in range(n_units)], size)
    labels = (luck < 1.0 / (1.0 + np.exp(-odds))).astype(int)
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(
        Batch.from_columns({"confidences": score, "labels": labels, "units": units}).batch
    )
    return View(pane, PaneQuery())


def test_a_calibrated_segmentation_model_is_near_its_reference_and_a_wrong_one_above() -> None:
    rng = np.random.default_rng(12)
    means, wrong = [], 0
    for _ in range(8):
        found = compute_metrics(view_of(rng, N_CASES, N_PIXELS, 1.0, True), ["ece"])["ece"]
        means.append((found["value"], found["null_mean"], found["null_worst_case"]["mean"]))
        wrong += compute_metrics(view_of(rng, N_CASES, N_PIXELS, 0.6, True), ["ece"])["ece"][
            "above_null"
        ]
    seen, expected, worst = np.mean(means, axis=0)
    assert 0.5 < seen / expected < 2.0
    assert worst > 5.0 * expected
    assert wrong == 8


@pytest.mark.parametrize("own", [False, True])
def test_calibrated_models_of_few_units_are_rarely_above_it(own: bool) -> None:
    rng = np.random.default_rng(13)
    found = [compute_metrics(view_of(rng, 40, 10, 1.0, own), ["ece"])["ece"] for _ in range(60)]
    # 7 % are promised; ten of sixty have a chance of 1 in 120.
    assert sum(each["value"] > each["null_q95"] for each in found) < 10
    assert {each["null_promised"] for each in found} == {True}


@pytest.mark.parametrize("slug", ["brier", "accuracy"])
def test_means_of_dependent_units_have_the_reference_of_drawn_labels(slug: str) -> None:
    """Labels drawn with the units' own dependence give the 95 % quantile, which the worst case exceeds."""
    rng = np.random.default_rng(16)
    found = [compute_metrics(view_of(rng, 60, 20, 1.0, True), [slug])[slug] for _ in range(60)]
    distance = [(each["value"] - each["null_mean"]) for each in found]
    stated = np.mean([each["null_q95"] - each["null_mean"] for each in found])
    assert 0.7 < 1.645 * np.std(distance) / stated < 1.3
    assert sum(each["value"] > each["null_q95"] for each in found) < 10
    assert all(each["null_worst_case"]["q95"] > each["null_q95"] for each in found)
    few = compute_metrics(view_of(rng, 8, 30, 1.0, True), [slug])[slug]
    assert (few["null_q95"], few["null_reason"]) == (None, "too_few_units")


def test_few_units_have_the_worst_case_alone() -> None:
    rng = np.random.default_rng(14)
    found = compute_metrics(view_of(rng, 8, 30, 1.0, True), ["ece"])["ece"]
    assert (found["null_q95"], found["null_reason"]) == (None, "too_few_units")
    assert found["null_worst_case"]["q95"] > found["null_worst_case"]["mean"] > 0.0
    some = compute_metrics(view_of(rng, 17, 30, 1.0, True), ["ece"])["ece"]
    assert 12 <= some["null_replicates"] < 20
    assert some["null_q95"] is not None
    assert some["null_promised"] is False


def test_a_status_needs_twice_the_error_of_the_draws() -> None:
    rng = np.random.default_rng(15)
    for _ in range(20):
        found = compute_metrics(view_of(rng, 60, 5, 1.0, True), ["ece"])["ece"]
        difference = found["value"] - found["null_q95"]
        if abs(difference) < 2.0 * found["null_q95_error"]:
            assert found["above_null"] is None
        else:
            assert found["above_null"] is (difference > 0.0)


@pytest.mark.parametrize("n", [12, 40])
def test_draws_that_metrics_share_are_those_of_one_alone(n: int) -> None:
    """Drawn anew each time, the reference is the same in every bit."""
    rng = np.random.default_rng(n)
    difference, weight = rng.normal(size=(n, 1, 5)), np.full((1, 5), 100.0)
    for seed in (0, 7, 0):
        draws = np.random.default_rng(seed).standard_normal((N_DRAWS, n)) * np.sqrt(n / (n - 1.0))
        chi = np.random.default_rng([seed, n]).chisquare(n - 1.0, N_DRAWS)
        noise = np.tensordot(draws, difference, axes=1) * np.sqrt((n - 1.0) / chi)[:, None, None]
        drawn = np.abs(np.clip(noise / weight, -1.0, 1.0)).sum((-1, -2))
        gaps = unit_gaps(weight, difference, np.zeros((1, 5)), seed)
        null = unit_null(lambda _, gap: np.abs(gap).sum((-1, -2)), weight, gaps)
        assert null == quantiles_of(drawn, 0.95)
