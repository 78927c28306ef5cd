"""Unbiased estimates of symmetric statistics of n raters from a row's votes: U-statistics.

A symmetric statistic of n labels is a function of how many of them fell on each class. Its expectation over n
raters of a row is estimated by its mean over all n-subsets of the row's votes; the subsets with equal counts
are taken together, so that the cost grows with the number of ways to put n labels into K classes and not with
the number of subsets.

Source: Hoeffding (1948); Mimori et al. (AISTATS 2021), eq. 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
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
    return np.divide(mean, subsets, out=np.full(len(votes), np.nan), where=subsets > 0)


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
    return 1.0 - np.divide(same, pairs, out=np.full(len(votes), np.nan), where=pairs > 0)


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


def _choose(n: Floats, k: int) -> Floats:
    """Binomial coefficients, 0 where n < k."""
    result = np.ones_like(n)
    for i in range(k):
        result *= np.maximum(n - i, 0.0) / (i + 1.0)
    return result
