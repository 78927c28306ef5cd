"""An interval that is computed on bins is not returned where these bins lose what the value measures."""

from __future__ import annotations

import numpy as np

import calibrant as cal

N = 4_000


def corp(scores: np.ndarray, rate: np.ndarray, seed: int) -> cal.Estimate:
    labels = (np.random.default_rng(seed).random(N) < rate).astype(int)
    return cal.evaluate(scores, labels, metrics=["corp_miscalibration"])["corp_miscalibration"]


def test_scores_that_crowd_near_one_have_no_interval_of_miscalibration():
    # All scores are in one of thirty bins, and the true rate goes from 0 to 1 there.
    scores = np.random.default_rng(1).uniform(0.97, 1.0, N)
    rate = (scores - 0.97) / 0.03
    found = corp(scores, rate, 2)
    population = float(np.mean((scores - rate) ** 2))
    assert abs(found.value - population) < 0.02
    assert found.interval is None
    assert found.extra["interval_reason"] == "bins_too_coarse"
    assert "interval_bins" not in found.extra and found.null_mean is not None


def test_scores_over_the_whole_range_have_one_that_covers():
    scores = np.random.default_rng(3).uniform(0.0, 1.0, N)
    rate = scores**1.5
    population = float(np.mean((scores - rate) ** 2))
    covered = [
        low <= population <= high
        for low, high in (corp(scores, rate, s).interval for s in range(40, 80))
    ]
    assert np.mean(covered) >= 0.9


def test_chance_alone_takes_no_interval_away():
    scores = np.random.default_rng(4).uniform(0.0, 1.0, N)
    for seed in range(100, 110):
        found = corp(scores, scores, seed)
        assert found.interval is not None and found.interval[0] == 0.0
