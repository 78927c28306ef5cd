"""Agreement of raters, reported with the alarm: no model can follow the labels of raters who disagree."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def krippendorff_alpha(label_counts: ArrayLike) -> float | None:
    """Krippendorff's alpha for nominal labels: 1 if raters agree, 0 if they agree as by chance.

    Parameters
    ----------
    label_counts : int (n, n_classes), ratings of each prediction by class; rows with fewer than two are ignored

    Returns
    -------
    float at most 1; None if no prediction has two ratings or only one class occurs.

    Source
    ------
    Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section D.

    Examples
    --------
    >>> krippendorff_alpha([[2, 0], [0, 2], [1, 1]])
    0.4444444444444444
    """
    counts = np.asarray(label_counts, np.float64)
    n_ratings = counts.sum(axis=1)
    counts, n_ratings = counts[n_ratings >= 2], n_ratings[n_ratings >= 2]
    total = counts.sum(axis=0)
    by_chance = float(total.sum() ** 2 - (total**2).sum())
    if not by_chance:
        return None
    pairs = (n_ratings**2 - (counts**2).sum(axis=1)) / (n_ratings - 1.0)
    return 1.0 - (float(total.sum()) - 1.0) * float(pairs.sum()) / by_chance
