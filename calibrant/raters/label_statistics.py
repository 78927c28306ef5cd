"""Unbiased estimates of symmetric statistics of n raters from a row's votes: U-statistics.

A symmetric statistic of n labels is a function of how many of them fell on each class. Its expectation over n
raters of a row is estimated by its mean over all n-subsets of the row's votes; the subsets with equal counts
are taken together, so that the cost grows with the number of ways to put n labels into K classes and not with
the number of subsets.

Source: Hoeffding (1948); Mimori et al. (AISTATS 2021), eq. 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def u_statistic(
    label_counts: ArrayLike, statistic: Callable[[tuple[int, ...]], float], order: int
) -> Floats:
    """Mean of a symmetric statistic over all `order`-subsets of each row's votes.

    Parameters
    ----------
    label_counts : int (n, n_classes), votes by class
    statistic : of the counts by class of `order` labels, to a number
    order : int, at least 1

    Returns
    -------
    float64 (n,); nan where a row has fewer votes than `order`.

    Raises
    ------
    ValueError
        An order below 1, or negative votes.

    Examples
    --------
    >>> u_statistic([[2, 1]], lambda counts: float(max(counts) < 2), 2).round(4).tolist()
    [0.6667]
    """
    votes = np.asarray(label_counts, np.float64)
    if order < 1 or (votes < 0).any():
        raise ValueError("an order is at least 1, and votes are not negative")
    subsets = _choose(votes.sum(axis=1), order)
    mean = np.zeros(len(votes))
    for counts in compositions(order, votes.shape[1]):
        value = float(statistic(counts))
        if value:
            ways = np.ones(len(votes))
            for k, count in enumerate(counts):
                if count:
                    ways *= _choose(votes[:, k], count)
            mean += value * ways
    return np.asarray(np.divide(mean, subsets, out=np.full(len(votes), np.nan), where=subsets > 0))


def disagreement(label_counts: ArrayLike) -> Floats:
    """Share of each row's pairs of votes that differ: the U-statistic of order 2 of "the two labels differ".

    Parameters
    ----------
    label_counts : int (n, n_classes)

    Returns
    -------
    float64 (n,) in [0, 1]; nan with fewer than two votes. The Gini-Simpson index.

    Examples
    --------
    >>> disagreement([[2, 1], [3, 0]]).round(4).tolist()
    [0.6667, 0.0]
    """
    votes = np.asarray(label_counts, np.float64)
    total = votes.sum(axis=1)
    pairs = total * (total - 1.0)
    same = (votes * (votes - 1.0)).sum(axis=1)
    return np.asarray(
        1.0 - np.divide(same, pairs, out=np.full(len(votes), np.nan), where=pairs > 0)
    )


def not_all_agree(label_counts: ArrayLike, order: int) -> Floats:
    """Share of each row's `order`-subsets of votes that are not all for one class; (n,), nan with fewer votes.

    Examples
    --------
    >>> not_all_agree([[3, 1]], 3).tolist()
    [0.75]
    """
    votes = np.asarray(label_counts, np.float64)
    return np.asarray(1.0 - _share(votes, _choose(votes, order).sum(axis=1), order))


def all_differ(label_counts: ArrayLike, order: int) -> Floats:
    """Share of each row's `order`-subsets of votes in which no class comes twice; (n,), nan with fewer votes.

    Examples
    --------
    >>> all_differ([[2, 1, 1]], 3).tolist()
    [0.5]
    """
    votes = np.asarray(label_counts, np.float64)
    return _share(votes, _distinct(votes, order), order)


def more_than_half_agree(label_counts: ArrayLike, order: int) -> Floats:
    """Share of each row's `order`-subsets of votes with a class that more than half are for; (n,), nan with fewer.

    Examples
    --------
    >>> more_than_half_agree([[2, 1, 1]], 3).tolist()
    [0.5]
    """
    votes = np.asarray(label_counts, np.float64)
    others = votes.sum(axis=1, keepdims=True) - votes
    ways = [
        _choose(votes, m) * _choose(others, order - m) for m in range(order // 2 + 1, order + 1)
    ]
    return _share(votes, np.sum(ways, axis=(0, 2)), order)


def chance_not_all_agree(probabilities: Floats, order: int) -> Floats:
    """Chance that `order` labels drawn from each row are not all of one class; (n,)."""
    return np.asarray(1.0 - (probabilities**order).sum(axis=1))


def chance_all_differ(probabilities: Floats, order: int) -> Floats:
    """Chance that no two of `order` labels drawn from each row are of one class; (n,)."""
    return math.factorial(order) * _distinct(probabilities, order)


def chance_more_than_half_agree(probabilities: Floats, order: int) -> Floats:
    """Chance that more than half of `order` labels drawn from each row are of one class; (n,)."""
    return np.asarray(
        scipy.stats.binom.sf(order // 2, order, np.clip(probabilities, 0.0, 1.0)).sum(axis=1)
    )


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to put `total` alike labels into `parts` classes.

    Examples
    --------
    >>> list(compositions(2, 2))
    [(2, 0), (1, 1), (0, 2)]
    """
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def _share(votes: Floats, ways: Floats, order: int) -> Floats:
    """Ways to choose over all ways to choose so many votes; nan where there are fewer."""
    subsets = _choose(votes.sum(axis=1), order)
    return np.asarray(np.divide(ways, subsets, out=np.full(len(votes), np.nan), where=subsets > 0))


def _distinct(values: Floats, order: int) -> Floats:
    """Sum over all choices of `order` different columns of the product of their values; (n, n_columns) to (n,)."""
    sums = np.zeros((order + 1, len(values)))
    sums[0] = 1.0
    for column in values.T:
        sums[1:] += column * sums[:-1]
    return np.asarray(sums[order])


def _choose(n: Floats, k: int) -> Floats:
    """Binomial coefficients, 0 where n < k."""
    result = np.ones_like(n)
    for i in range(k):
        result *= np.maximum(n - i, 0.0) / (i + 1.0)
    return result


# By name: the statistic of votes, and its chance among labels drawn from probabilities. Each is of one yes or no.
STATISTICS: dict[
    str, tuple[Callable[[ArrayLike, int], Floats], Callable[[Floats, int], Floats]]
] = {
    "disagreement": (not_all_agree, chance_not_all_agree),
    "all_differ": (all_differ, chance_all_differ),
    "majority": (more_than_half_agree, chance_more_than_half_agree),
}
