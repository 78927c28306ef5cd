"""T-Cal: size, power, invariants and a second version."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.inference.t_cal import squared_gaps, t_cal


def draw(n, curve, seed):
    rng = np.random.default_rng(seed)
    score = rng.beta(0.7, 2.2, n)
    return score, (rng.random(n) < curve(score)).astype(float)


def peaks(score):
    """Narrow peaks of miscalibration, which average out in wide bins."""
    return np.clip(score + 0.15 * np.sin(40 * score), 0, 1)


def test_squared_gaps_equal_the_sum_over_pairs():
    """The paper's definition: in each bin, products of residuals of different rows over the bin's count."""
    score, outcome = draw(60, lambda p: p, 1)
    score.sort()
    residual, place = outcome - score, (score * 8).astype(np.int64)
    naive = sum(
        residual[i] * residual[j] / (place == place[i]).sum()
        for i in range(60)
        for j in range(60)
        if i != j and place[i] == place[j]
    )
    assert float(squared_gaps(residual, place, 8)) == pytest.approx(naive / 60)


def test_calibrated_models_are_rejected_as_often_as_stated():
    """At level .1, of 300: the chance of 48 or more is below 1 in 1,000."""
    found = [t_cal(*draw(150, lambda p: p, seed), seed, 200)["p_value"] for seed in range(300)]
    assert 12 < sum(p <= 0.1 for p in found) < 48


@pytest.mark.parametrize(
    ("curve", "bins"),
    [(peaks, (16, 128)), (lambda p: 1 / (1 + ((1 - p) / p) ** 0.6), (2, 8))],
    ids=["narrow", "smooth"],
)
def test_it_adapts_the_number_of_bins_to_the_miscalibration(curve, bins):
    found = [t_cal(*draw(1000, curve, seed), seed, 200) for seed in range(40)]
    assert sum(each["p_value"] <= 0.05 for each in found) >= 35
    assert bins[0] <= np.median([each["bins"] for each in found]) <= bins[1]


def test_skce_reports_it_for_single_independent_labels_only():
    score, outcome = draw(400, peaks, 3)
    labels = outcome.astype(int)
    found = cal.skce(score, labels).extra["t_cal"]
    assert (
        found["p_value"] < 0.05 and found["scope"] == "class:1" and "smooth" in found["assumption"]
    )
    for more in ({"units": np.arange(400) // 2}, {"weights": 1.0 + np.arange(400) % 2}):
        found = cal.skce(score, labels, **more).extra["t_cal"]
        assert found == {"p_value": None, "reason": "independent_labels_only"}
    assert cal.skce(score[:50], labels[:50]).extra["t_cal"]["reason"] == "too_few_units"


def test_several_classes_are_tested_by_the_top_label():
    rng = np.random.default_rng(5)
    probabilities = rng.dirichlet(np.full(4, 0.3), 500)
    labels = np.array([rng.choice(4, p=each) for each in probabilities])
    assert cal.skce(probabilities, labels).extra["t_cal"]["scope"] == "top_label"
    sharper = probabilities**3 / (probabilities**3).sum(axis=1, keepdims=True)
    assert cal.skce(sharper, labels).extra["t_cal"]["p_value"] < 0.01
