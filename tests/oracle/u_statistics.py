"""U-statistics by their definition: means over all subsets of a row's ratings, those with equal counts together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from calibrant.core.arrays import Floats, ratio
from calibrant.raters.label_statistics import _choose


def u_statistic(
    label_counts: ArrayLike, statistic: Callable[[tuple[int, ...]], float], order: int
) -> Floats:
    """Return the mean of a symmetric statistic over all `order`-subsets of each row's ratings.

    Parameters
    ----------
    label_counts : int (n, n_classes), label counts
    statistic : function of the counts by class of `order` labels, to a number
    order : int, at least 1

    Returns
    -------
    float64 (n,); nan if a row has fewer ratings than `order`.

    Raises
    ------
    ValueError
        An order below 1, or negative label counts.

    Examples
    --------
    >>> u_statistic([[2, 1]], lambda counts: float(max(counts) < 2), 2).round(4).tolist()
    [0.6667]
    """
    ratings = np.asarray(label_counts, np.float64)
    if order < 1 or (ratings < 0).any():
        raise ValueError(
            "Received a negative label count or an order below 1; expected counts of 0 or more and an order of at least 1."
        )
    subsets = _choose(ratings.sum(axis=1), order)
    mean = np.zeros(len(ratings))
    for counts in compositions(order, ratings.shape[1]):
        value = float(statistic(counts))
        if value:
            ways = np.ones(len(ratings))
            for k, count in enumerate(counts):
                if count:
                    ways *= _choose(ratings[:, k], count)
            mean += value * ways
    return ratio(mean, subsets, np.nan)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to put `total` identical labels into `parts` classes.

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
