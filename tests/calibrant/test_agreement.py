"""Agreement of raters, against scikit-learn and pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from calibrant.raters.agreement import MIN_COMMON, agreements, cohen_kappa

RNG = np.random.default_rng(7)
N, K = 300, 4
TRUTH = RNG.integers(0, K, N)
RATERS = {
    name: np.where(RNG.random(N) < 0.2, -1, np.where(RNG.random(N) < error, RNG.integers(0, K, N), TRUTH))
    for name, error in (("a", 0.1), ("b", 0.3), ("c", 0.6))
}  # fmt: skip
COUNTS = np.array([np.bincount([each[i] for each in RATERS.values() if each[i] >= 0], minlength=K) for i in range(N)])  # fmt: skip


def test_kappa_equals_that_of_scikit_learn() -> None:
    for one, two in combinations(RATERS.values(), 2):
        both = (one >= 0) & (two >= 0)
        expected = cohen_kappa_score(one[both], two[both])
        assert cohen_kappa(one, two) == pytest.approx(expected, abs=1e-12)
        assert cohen_kappa(two, one) == pytest.approx(expected, abs=1e-12)


def test_agreement_is_that_of_all_pairs() -> None:
    found = agreements(RATERS, COUNTS)
    for name, mine in RATERS.items():
        pairs = [
            mine[i] == other[i]
            for each, other in RATERS.items()
            for i in range(N)
            if each != name and mine[i] >= 0 and other[i] >= 0
        ]
        assert found[name]["agreement"] == pytest.approx(np.mean(pairs), abs=1e-12)
        assert found[name]["kappa"].keys() == RATERS.keys() - {name}


def test_no_kappa_of_few_predictions_or_of_one_class() -> None:
    one = np.zeros(MIN_COMMON - 1, np.int64)
    assert cohen_kappa(one, 1 - one) is None
    assert cohen_kappa(np.zeros(50, np.int64), np.zeros(50, np.int64)) is None
