"""Intervals of class 1 from two columns of probabilities: those of the same probabilities given as one column."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

N, N_SAMPLES = 400, 100
METRICS = ("oe_ratio", "calibration_slope", "auc", "ece", "corp_uncertainty", "net_benefit")


def sample(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of class 1 and outcomes, which occur at the odds of the score to the power .8 times e^.3."""
    rng = np.random.default_rng([seed, 11])
    odds = rng.normal(-0.5, 1.2, N)
    outcomes = (rng.random(N) < 1.0 / (1.0 + np.exp(-(0.3 + 0.8 * odds)))).astype(int)
    return 1.0 / (1.0 + np.exp(-odds)), outcomes


def columns(scores: np.ndarray) -> np.ndarray:
    return np.stack([1.0 - scores, scores], axis=1)


@pytest.mark.parametrize("of_state", [False, True])
def test_two_columns_have_the_intervals_of_one(of_state: bool) -> None:
    widths: dict[str, list[float]] = {name: [] for name in METRICS}
    for seed in range(12):
        scores, outcomes = sample(seed)
        for probabilities in (scores, columns(scores)):
            data = cal.Pane.fill(probabilities, outcomes) if of_state else None
            report = (
                data.evaluate(METRICS, scope="positive")
                if data is not None
                else cal.evaluate(probabilities, outcomes, METRICS, scope="positive")
            )
            for name in METRICS:
                low, high = report[name].interval
                assert low <= report[name].value <= high, name
                widths[name].append(high - low)
    for name, each in widths.items():
        one, two = np.mean(each[::2]), np.mean(each[1::2])
        assert two == pytest.approx(one, rel=0.1), name


def test_net_benefit_of_two_columns_has_the_interval_of_one() -> None:
    scores, outcomes = sample(3)
    one, two = (cal.net_benefit(each, outcomes).interval for each in (scores, columns(scores)))
    assert np.ptp(two) == pytest.approx(np.ptp(one), rel=0.35)


def test_intervals_of_the_ratio_from_two_columns_contain_the_truth() -> None:
    odds = np.random.default_rng(0).normal(-0.5, 1.2, 1_000_000)
    truth = (1.0 / (1.0 + np.exp(-(0.3 + 0.8 * odds)))).mean() / (
        1.0 / (1.0 + np.exp(-odds))
    ).mean()
    inside = 0
    for seed in range(N_SAMPLES):
        scores, outcomes = sample(seed)
        low, high = cal.oe_ratio(columns(scores), outcomes, scope="positive").interval
        inside += low <= truth <= high
    assert inside >= N_SAMPLES * 0.93 - 2.0 * np.sqrt(N_SAMPLES * 0.93 * 0.07)
