"""Verdicts against a tolerance, and what a window could have shown."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import calibrant as cal
from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.detectable import detectable
from calibrant.metrics import is_error

N, RUNS = 800, 300


def view_of(score: np.ndarray, label: np.ndarray, units: list[str] | None = None) -> View:
    columns = {"confidences": score, "labels": label.astype(int)}
    batch = Batch.from_columns(columns | ({} if units is None else {"units": units})).batch
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(batch)
    return View(pane, PaneQuery())


def fitted(odds: np.ndarray, label: np.ndarray, free: bool) -> tuple[float, float]:
    """Estimate and variance of the slope with a free intercept, or of the intercept at slope 1."""
    terms = np.stack([odds, np.ones(len(odds))]) if free else np.ones((1, len(odds)))
    offset = np.zeros(len(odds)) if free else odds
    beta = np.array([1.0, 0.0]) if free else np.zeros(1)
    for _ in range(12):
        p = expit(offset + beta @ terms)
        hessian = (terms * (p * (1.0 - p))) @ terms.T
        beta = beta + np.linalg.solve(hessian, terms @ (label - p))
    return float(beta[0]), float(np.linalg.inv(hessian)[0, 0])


@pytest.mark.parametrize(("name", "sign"), [("slope", -1), ("slope", 1), ("intercept", 1)])
def test_a_change_of_the_stated_size_is_found_in_four_of_five(name: str, sign: int) -> None:
    rng = np.random.default_rng(3)
    score = rng.beta(0.7, 2.2, N)
    size = sign * detectable(view_of(score, rng.random(N) < score))[name]
    found = 0
    for _ in range(RUNS):
        odds = logit(rng.beta(0.7, 2.2, N))
        line = (1.0 + size) * odds if name == "slope" else size + odds
        value, variance = fitted(odds, rng.random(N) < expit(line), name == "slope")
        found += abs(value - (name == "slope")) > 1.96 * np.sqrt(variance)
    assert found / RUNS > 0.72
    if sign > 0:
        # The larger of both directions is stated: the other is found more often.
        assert found / RUNS < 0.90


def test_more_data_show_less_and_dependent_units_show_more() -> None:
    rng = np.random.default_rng(4)
    score = np.repeat(rng.beta(0.7, 0.7, 100), 10)
    label = np.repeat(rng.random(100), 10) < score
    alone, later = (detectable(view_of(score, label), times) for times in (1.0, 4.0))
    for name in ("intercept", "slope", "local_error"):
        assert later[name] < alone[name]
    assert later["n_effective"] == pytest.approx(4.0 * alone["n_effective"])
    together = detectable(view_of(score, label, [f"u{i // 10}" for i in range(1000)]))
    assert together["intercept"] > 2.0 * alone["intercept"]
    few = detectable(view_of(score[:50], label[:50], [f"u{i // 10}" for i in range(50)]))
    assert (few["slope"], few["reason"]) == (None, "too_few_units")


def test_scores_without_variation_detect_no_slope() -> None:
    found = detectable(view_of(np.full(100, 0.3), np.arange(100) < 30))
    assert found["slope"] is None
    assert found["intercept"] > 0


def test_verdicts_of_a_report() -> None:
    rng = np.random.default_rng(5)
    score = rng.uniform(0.05, 0.95, 4000)
    right = cal.evaluate(score, (rng.random(4000) < score).astype(int), ["ece", "brier", "mce"])
    assert right.verdicts(0.05)["ece"] == "within_tolerance"
    assert "brier" not in right.verdicts(0.05)
    wrong = cal.evaluate(score, (rng.random(4000) < score**3).astype(int), ["ece"])
    assert wrong.verdicts(0.05) == {"ece": "outside"}
    few = cal.evaluate(score[:20], (rng.random(20) < score[:20]).astype(int), ["ece"])
    assert few.verdicts(0.5) == {"ece": "not_shown"}
    assert right.detectable["slope"] < 0.2 < few.detectable["slope"]
    assert [is_error(slug) for slug in ("ece", "classwise_ece", "accuracy", "brier", "no")] == [
        True, True, False, False, False,
    ]  # fmt: skip
