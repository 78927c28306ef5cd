"""Naive second versions of what drift says beside its evidence: the scores' watch, two windows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency, entropy

from calibrant.drift.unlabelled_scores import NULL_LEVEL, PSI, window_shift


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
