"""U-statistics by their definition: means over all subsets of a row's ratings, listed one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from calibrant.core.arrays import Floats


def u_statistic(
    label_counts: ArrayLike, statistic: Callable[[tuple[int, ...]], float], order: int
) -> Floats:
    """Return the mean of a statistic of counts by class over the `order`-subsets of each row's ratings; nan where there is none."""
    found = []
    for row in np.asarray(label_counts):
        labels = np.repeat(np.arange(len(row)), row)
        subsets = (np.bincount(each, minlength=len(row)) for each in combinations(labels, order))
        values = [statistic(tuple(counts.tolist())) for counts in subsets]
        found.append(np.mean(values) if values else np.nan)
    return np.array(found, np.float64)
