"""Orders of probabilities and votes, decided mostly without sorting, against the definition for every pair of classes."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.raters.label_comparison import compare


def naive(probabilities: np.ndarray, ratings: np.ndarray) -> tuple[bool, bool, bool]:
    """same_order, same_strict_order, untied of one row."""
    k = len(ratings)
    same = (np.argsort(ratings, kind="stable") == np.argsort(probabilities, kind="stable")).all()
    pairs = [(i, j) for i in range(k) for j in range(k) if ratings[i] < ratings[j]]
    strict = all(probabilities[i] < probabilities[j] for i, j in pairs)
    return bool(same), strict, len(set(ratings.tolist())) == k


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("n_ratings", [1, 2, 4])
def test_orders_are_those_of_the_definition(n_classes: int, n_ratings: int) -> None:
    rng = np.random.default_rng(n_classes + n_ratings)
    probabilities = rng.multinomial(6, np.full(n_classes, 1 / n_classes), 600) / 6
    ratings = rng.multinomial(n_ratings, np.full(n_classes, 1 / n_classes), 600)
    ratings[:100] = np.rint(6 * probabilities[:100]).astype(np.int64)
    found = compare(probabilities, ratings)
    expected = np.array([naive(*row) for row in zip(probabilities, ratings, strict=True)])
    assert (
        np.stack([found.same_order, found.same_strict_order, found.untied], axis=1) == expected
    ).all()
    assert expected.any(axis=0).all() or n_classes > 3
    assert not expected.all(axis=0).any() or n_classes == 2


def test_all_orders_occur() -> None:
    found = compare(np.array([[0.1, 0.3, 0.6], [0.6, 0.3, 0.1]]), np.array([[0, 1, 2], [0, 1, 2]]))
    assert found.same_order.tolist() == found.same_strict_order.tolist() == [True, False]
    assert found.untied.tolist() == [True, True]
