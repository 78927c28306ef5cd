"""Intervals are of the value's own bins, and few samples have none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics


def view_of(columns: dict[str, np.ndarray], raw: bool = False, **pane_query: object) -> View:
    batch = Batch.from_columns(columns).batch
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(**pane_query), batch if raw else None)  # type: ignore[arg-type]


def test_equal_mass_intervals_hold_the_true_error_of_scores_in_one_corner() -> None:
    """Scores in four of sixty bins, a flat truth: the error over equal-mass cuts is .016, over equal-width bins about 0."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(20):
        score = rng.uniform(0.935, 0.999, 3000)
        columns = {"confidences": score, "labels": (rng.random(3000) < 0.967).astype(int)}
        found = compute_metrics(view_of(columns, raw=True), ["adaptive_ece"])["adaptive_ece"]
        low, high = found["interval"]
        held += low <= 0.016 <= high
        assert found["interval_bins"] == found["bins"] == 15
    assert held >= 18


def test_an_interval_has_the_bins_of_its_value() -> None:
    rng = np.random.default_rng(2)
    score = rng.random(800)
    columns = {"confidences": score, "labels": (rng.random(800) < score).astype(int)}
    for bins in (7, 10, 15, 25):
        found = compute_metrics(view_of(columns, raw=True, bins=bins), ["ece"])["ece"]
        assert found["interval_bins"] == bins
        assert found["interval"] is not None


def test_ace_is_judged_on_bins_with_enough_samples() -> None:
    rng = np.random.default_rng(3)
    score = rng.beta(0.7, 2.2, 300)
    columns = {"confidences": score, "labels": (rng.random(300) < score).astype(int)}
    found = compute_metrics(view_of(columns), ["ace", "ece"])
    assert len(found["ace"]["interval_bins_left_out"]) > 0
    assert found["ace"]["interval_min_units"] == 5.0
    assert "interval_bins_left_out" not in found["ece"]


def test_weights_lower_the_effective_number_until_there_is_no_interval() -> None:
    rng = np.random.default_rng(4)
    score = rng.random(400)
    columns = {"confidences": score, "labels": (rng.random(400) < score).astype(int)}
    plain = compute_metrics(view_of(columns), ["ece"])["ece"]
    assert plain["n_effective"] > 200
    columns["weights"] = np.exp(rng.normal(0, 2.0, 400))
    found = compute_metrics(view_of(columns), ["ece"])["ece"]
    assert (found["interval"], found["interval_reason"]) == (None, "too_few_units")


def test_a_value_that_chance_explains_does_not_exclude_a_calibrated_model() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        score = rng.beta(0.7, 2.2, 150)
        columns = {"confidences": score, "labels": (rng.random(150) < score).astype(int)}
        for found in compute_metrics(view_of(columns), ["ece", "rmsce", "smooth_ece"]).values():
            if found["value"] <= found["null_q95"] and found["interval"] is not None:
                assert found["interval"][0] == 0.0


def test_hosmer_lemeshow_needs_equal_weights() -> None:
    rng = np.random.default_rng(6)
    score = rng.random(200)
    columns = {"confidences": score, "labels": (rng.random(200) < score).astype(int)}
    columns["weights"] = np.full(200, 2.0)
    assert compute_metrics(view_of(columns), ["hosmer_lemeshow"])["hosmer_lemeshow"]["value"]
    columns["weights"] = np.exp(rng.normal(0, 1.5, 200))
    found = compute_metrics(view_of(columns), ["hosmer_lemeshow"])["hosmer_lemeshow"]
    assert (found["value"], found["reason"]) == (None, "unequal_weights")


def test_hosmer_lemeshow_has_groups_by_mass_and_a_smallest_p_value():
    """Group j ends with the score at ceil(j n / 10); `numpy.array_split` has another order of sizes, and another value."""
    rng = np.random.default_rng(0)
    n, p = 103, rng.uniform(0.001, 0.01, 103)
    y = (rng.random(n) < 0.2).astype(int)
    order, ends = np.argsort(p), [-(-j * n // 10) for j in range(11)]
    groups = [order[a:b] for a, b in pairwise(ends)]
    statistic = sum(
        (y[g].sum() - p[g].sum()) ** 2 / (len(g) * p[g].mean() * (1 - p[g].mean())) for g in groups
    )
    found = cal.hosmer_lemeshow(p, y, bins=10)
    assert found.value == pytest.approx(statistic, rel=1e-9)
    assert found.extra["p_value"] == pytest.approx(1 / 2001)
