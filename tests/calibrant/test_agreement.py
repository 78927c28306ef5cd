"""Agreement of raters, against scikit-learn and pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from calibrant.raters.agreement import MIN_COMMON, agreements, cohen_kappa
from calibrant.raters.odd_rater import odd_rater

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


def naive_dice(one: np.ndarray, two: np.ndarray, case: np.ndarray) -> float:
    of_cases = []
    for name in sorted(set(case[case >= 0].tolist())):
        rows = [i for i in range(N) if case[i] == name and one[i] >= 0 and two[i] >= 0]
        of_classes = []
        for k in range(1, K):
            mine, theirs = ({i for i in rows if given[i] == k} for given in (one, two))
            if mine or theirs:
                of_classes.append(2 * len(mine & theirs) / (len(mine) + len(theirs)))
        if of_classes:
            of_cases.append(np.mean(of_classes))
    return float(np.mean(of_cases))


def test_dice_of_readers_is_that_of_their_sets_case_by_case() -> None:
    case = np.where(RNG.random(N) < 0.1, -1, np.arange(N) // 25)
    found = agreements(RATERS, COUNTS, case)
    for one, two in combinations(RATERS, 2):
        expected = naive_dice(RATERS[one], RATERS[two], case)
        assert found[one]["dice"][two] == pytest.approx(expected, abs=1e-12)
        assert found[two]["dice"][one] == pytest.approx(expected, abs=1e-12)
    assert "dice" not in agreements(RATERS, COUNTS)["a"]


def test_rows_with_weights_are_that_many_rows() -> None:
    """The regions of scans are read as rows of equal voxels."""
    weight, case = RNG.integers(1, 4, N), np.arange(N) // 25
    each = np.repeat(np.arange(N), weight)
    repeated = {name: given[each] for name, given in RATERS.items()}
    expected = agreements(repeated, COUNTS[each], case[each])
    found = agreements(RATERS, COUNTS, case, weight.astype(float))
    for name in RATERS:
        assert found[name]["agreement"] == pytest.approx(expected[name]["agreement"], abs=1e-12)
        for measure in ("kappa", "dice"):
            assert found[name][measure] == pytest.approx(expected[name][measure], abs=1e-12)
    once = odd_rater(repeated, K, each % 60)
    weighted = odd_rater(RATERS, K, np.arange(N) % 60, weight.astype(float))
    assert once is not None and weighted is not None and once["name"] == "c"
    assert weighted.keys() == once.keys()
    for name, value in once.items():
        assert weighted[name] == pytest.approx(value), name
