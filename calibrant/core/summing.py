"""Sums over classes in a fixed order, so that a row gives the same bits in every batch.

The order of numpy's additions depends on an array's shape. A score that selects a cell must have the same bits in a
batch of one and in a batch of thousands, so such sums add classes one after another.
"""

from __future__ import annotations

from calibrant.core.arrays import Floats


def over_classes(columns: Floats) -> Floats:
    """Sum over classes, class after class.

    Parameters
    ----------
    columns : float64 (n_classes, n)

    Returns
    -------
    float64 (n,)

    Examples
    --------
    >>> import numpy as np
    >>> over_classes(np.array([[1.0, 2.0], [0.5, 0.25]])).tolist()
    [1.5, 2.25]
    """
    total: Floats = columns[0].copy()
    for column in columns[1:]:
        total += column
    return total
