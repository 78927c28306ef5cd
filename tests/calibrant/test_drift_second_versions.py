"""Naive second versions of what drift says beside its evidence: the scores' watch, two windows, raters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency, entropy

from calibrant.drift.occupancy_shift import NULL_LEVEL, PSI, window_shift
from calibrant.drift.rater_shift import rater_or_model


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
    others = {f"r{i}": i < leaning for i in range(leaning + quiet)}
    assert rater_or_model([f"a{i}" for i in range(alarmed)], others).title == title
