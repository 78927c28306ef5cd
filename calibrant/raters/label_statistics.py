"""Unbiased estimates of symmetric statistics of n raters from a row's ratings: U-statistics.

The expectation over n raters of a row is estimated by the mean over all n-subsets of the row's ratings, in closed form.

Source: Hoeffding (1948); Mimori et al. (AISTATS 2021), eq. 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import ArrayLike

from calibrant.core.arrays import Floats, ratio


def disagreement(label_counts: ArrayLike) -> Floats:
    """Return the share of each row's pairs of ratings that differ: the U-statistic of order 2 of "the two labels differ".

    Parameters
    ----------
    label_counts : int (n, n_classes)

    Returns
    -------
    float64 (n,) in [0, 1]; nan with fewer than two ratings. The Gini-Simpson index.

    Examples
    --------
    >>> disagreement([[2, 1], [3, 0]]).round(4).tolist()
    [0.6667, 0.0]
    """
    ratings = np.asarray(label_counts, np.float64)
    total = ratings.sum(axis=1)
    pairs = total * (total - 1.0)
    same = (ratings * (ratings - 1.0)).sum(axis=1)
    return np.asarray(1.0 - ratio(same, pairs, np.nan))


def not_all_agree(label_counts: ArrayLike, order: int) -> Floats:
    """Return the share of each row's `order`-subsets of ratings that are not all of one class; (n,), nan with fewer ratings.

    Examples
    --------
    >>> not_all_agree([[3, 1]], 3).tolist()
    [0.75]
    """
    ratings = np.asarray(label_counts, np.float64)
    return np.asarray(1.0 - _share(ratings, _choose(ratings, order).sum(axis=1), order))


def all_differ(label_counts: ArrayLike, order: int) -> Floats:
    """Return the share of each row's `order`-subsets of ratings in which no class occurs twice; (n,), nan with fewer ratings.

    Examples
    --------
    >>> all_differ([[2, 1, 1]], 3).tolist()
    [0.5]
    """
    ratings = np.asarray(label_counts, np.float64)
    return _share(ratings, _distinct(ratings, order), order)


def more_than_half_agree(label_counts: ArrayLike, order: int) -> Floats:
    """Return the share of each row's `order`-subsets of ratings in which one class has more than half; (n,), nan with fewer.

    Examples
    --------
    >>> more_than_half_agree([[2, 1, 1]], 3).tolist()
    [0.5]
    """
    ratings = np.asarray(label_counts, np.float64)
    others = ratings.sum(axis=1, keepdims=True) - ratings
    ways = [
        _choose(ratings, m) * _choose(others, order - m) for m in range(order // 2 + 1, order + 1)
    ]
    return _share(ratings, np.sum(ways, axis=(0, 2)), order)


def chance_not_all_agree(probabilities: Floats, order: int) -> Floats:
    """Return the probability that `order` labels drawn from each row are not all of one class; (n,)."""
    return np.asarray(1.0 - (probabilities**order).sum(axis=1))


def chance_all_differ(probabilities: Floats, order: int) -> Floats:
    """Return the probability that no two of `order` labels drawn from each row are of one class; (n,)."""
    return math.factorial(order) * _distinct(probabilities, order)


def chance_more_than_half_agree(probabilities: Floats, order: int) -> Floats:
    """Return the probability that more than half of `order` labels drawn from each row are of one class; (n,)."""
    return np.asarray(
        scipy.special.bdtrc(order // 2, order, np.clip(probabilities, 0.0, 1.0)).sum(axis=1)
    )


def _share(ratings: Floats, ways: Floats, order: int) -> Floats:
    """Return ways to choose over all ways to choose this number of ratings; nan if there are fewer."""
    subsets = _choose(ratings.sum(axis=1), order)
    return ratio(ways, subsets, np.nan)


def _distinct(values: Floats, order: int) -> Floats:
    """Return the sum over all choices of `order` different columns of the product of their values; (n, n_columns) to (n,)."""
    sums = np.zeros((order + 1, len(values)))
    sums[0] = 1.0
    for column in values.T:
        sums[1:] += column * sums[:-1]
    return np.asarray(sums[order])


def _choose(n: Floats, k: int) -> Floats:
    """Return binomial coefficients, 0 if n < k."""
    result = np.ones_like(n)
    for i in range(k):
        result *= np.maximum(n - i, 0.0) / (i + 1.0)
    return result


# By name: the statistic of ratings, and its probability among labels drawn from probabilities. Each is of a binary event.
STATISTICS: dict[
    str, tuple[Callable[[ArrayLike, int], Floats], Callable[[Floats, int], Floats]]
] = {
    "disagreement": (not_all_agree, chance_not_all_agree),
    "all_differ": (all_differ, chance_all_differ),
    "majority": (more_than_half_agree, chance_more_than_half_agree),
}
