"""Naive second versions of what drift says beside its evidence: the scores' watch, ratios, two windows, raters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency, entropy, norm

from calibrant.drift.effect import effect
from calibrant.drift.occupancy_shift import NULL_LEVEL, PSI, window_shift
from calibrant.drift.rater_shift import rater_or_model
from calibrant.drift.unit_tables import UnitTable


def table_of(seed: int, bins: int = 8) -> UnitTable:
    """Units that contribute once each."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(20, 60, bins).astype(float)
    mean = (np.arange(bins) + 0.5) / bins
    correct = rng.binomial(weight.astype(int), mean**1.4).astype(float)
    return UnitTable(weight, weight * mean, correct, weight, weight)


def test_observed_over_expected_has_the_interval_of_its_logarithm() -> None:
    table = table_of(3)
    rate = table.correct / table.weight
    observed, expected = table.correct.sum(), table.confidence.sum()
    error = np.sqrt((table.weight * rate * (1.0 - rate)).sum()) / observed
    ends = observed / expected * np.exp(norm.ppf(0.975) * error * np.array([-1.0, 1.0]))
    found = effect(table)["observed_over_expected"]
    assert found["value"] == pytest.approx(observed / expected)
    assert found["interval"] == pytest.approx(ends.tolist())


def test_two_windows_differ_as_naive_tests_say() -> None:
    now, before = np.array([60.0, 40.0, 0.0, 80.0, 220.0]), np.array([90.0, 60.0, 0.0, 100.0, 90.0])
    found = window_shift(now, before)
    assert found is not None
    p, q = (now + 0.5) / (now.sum() + 2.5), (before + 0.5) / (before.sum() + 2.5)
    assert found.psi == pytest.approx(entropy(p, q) + entropy(q, p))
    null = chi2.ppf(1.0 - NULL_LEVEL, 3) * (1.0 / now.sum() + 1.0 / before.sum())
    assert found.limit == pytest.approx(PSI + null)
    counts = np.stack([now, before])[:, now > 0]
    is_unequal = chi2_contingency(counts, correction=False).pvalue < 0.01
    assert found.is_shifted == (is_unequal and found.psi > found.limit)


@pytest.mark.parametrize(
    ("alarmed", "leaning", "quiet", "title"),
    [
        (0, 2, 1, "none"),
        (1, 0, 2, "rater shift"),
        (1, 1, 1, "model drift"),
        (1, 1, 2, "undecided"),
        (1, 0, 0, "undecided"),
    ],
)
def test_raters_that_lean_the_same_way_speak_for_the_model(
    alarmed: int, leaning: int, quiet: int, title: str
) -> None:
    said = (
        [{"status": "alarm"}] * alarmed
        + [{"status": "ok", "leans": True}] * leaning
        + [{"status": "ok"}] * quiet
    )
    result = rater_or_model({f"r{i}": each for i, each in enumerate(said)})
    assert result["title"] == title
