"""Data with few outcomes of one kind: no interval that a few more predictions would show to be wrong."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from benchmarks.validation.checks import coverage
from benchmarks.validation.settings import Setting

MEANS = (
    "auc",
    "aurc",
    "macro_ce",
    "squared_loss",
    "dist_ce",
    "corp_discrimination",
    "l2_ece_squared",
    "net_benefit",
)
RISKS = ("oe_ratio", "calibration_intercept", "calibration_slope")


@pytest.mark.parametrize("slug", [*MEANS, *RISKS])
@pytest.mark.parametrize("label", [0, 1])
def test_outcomes_of_one_kind_have_no_interval(slug: str, label: int) -> None:
    """The jackknife saw no error: [.99875, 1] for a net benefit of 1 whose true value was .97."""
    scores = np.abs(1 - label - np.random.default_rng(0).uniform(0.97, 0.999, 200))
    found = cal.evaluate(scores, np.full(200, label), [slug])[slug]
    assert found.interval is None and (found.reason or found.extra["interval_reason"])


@pytest.mark.parametrize("label", [0, 1])
def test_a_base_rate_of_0_or_1_has_an_interval(label: int) -> None:
    """It ended with a division by zero."""
    scores = np.abs(1 - label - np.random.default_rng(0).uniform(0.97, 0.999, 200))
    low, high = cal.evaluate(scores, np.full(200, label), ["corp_uncertainty"])[
        "corp_uncertainty"
    ].interval
    # Wilson's upper end of 0 of 200 is about .019.
    assert low == pytest.approx(0.0, abs=1e-12) and high == pytest.approx(
        0.0188 * (1 - 0.0188), rel=0.1
    )


@pytest.mark.parametrize(
    "setting", [Setting("accurate", n=600), Setting("corner", "slope .6", 150)], ids=str
)
def test_intervals_of_accurate_models_contain_the_truth_or_are_not_given(setting: Setting) -> None:
    """With one to five errors they contained it in .3 to .8 of runs."""
    found = coverage(setting, MEANS[:-1], 3, range(120))
    for slug in MEANS[:-1]:
        given = found[f"{slug}/given"]
        assert found[f"{slug}/held"] >= 0.93 * given - 2.5 * np.sqrt(0.07 * 0.93 * given), slug


@pytest.mark.parametrize(
    ("score", "n_wrong", "is_given"),
    [(0.9, 19, False), (0.9, 20, True), (0.97, 20, False), (0.97, 59, False), (0.97, 60, True)],
)
@pytest.mark.parametrize("label", [0, 1])
def test_the_squared_error_needs_outcomes_that_are_not_of_an_unusual_window(
    score: float, n_wrong: int, is_given: bool, label: int
) -> None:
    """Of windows with 20 outcomes where the scores expect 8, .63 of the intervals contained the truth. Here they expect 40 or 12 of 400."""
    scores = np.abs(1 - label - np.random.default_rng(0).uniform(score - 0.02, score + 0.02, 400))
    labels = np.where(np.arange(400) < n_wrong, 1 - label, label)
    found = cal.l2_ece_squared(scores, labels)
    assert (found.interval is not None) is is_given
    assert is_given or found.extra["interval_reason"] == "few_errors"
