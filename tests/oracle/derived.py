"""Bins and edge rules of numbers that are computed from the scores of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch_sums import BatchSums, CorrectRatings
from calibrant.core.edge_rules import FLOAT32, Rules
from calibrant.core.grid import DERIVED_EDGE


def derived_bin(score: NDArray[np.float64], n_bins: int) -> NDArray[np.int64]:
    """Return the equal-width bin, right edges, of scores with rounding errors: within `DERIVED_EDGE` of an edge they are on it.

    Examples
    --------
    >>> derived_bin(np.array([0.0, 0.5 - 1e-15, 0.5 + 1e-15, 0.6]), 10).tolist()
    [0, 4, 4, 5]
    """
    bins = np.ceil(score * n_bins - DERIVED_EDGE) - 1.0
    return np.asarray(np.clip(bins, 0, n_bins - 1), np.int64)


def derived_rules(rules: Rules | None) -> Rules | None:
    """Return the rules of numbers that are computed from the scores of rows: these have no 16 bits."""
    return None if rules is None else np.minimum(rules, FLOAT32)


def score_correct(batch_sums: BatchSums) -> CorrectRatings:
    """Return the correct ratings of the class of `score`."""
    if batch_sums.batch.task == "binary":
        return batch_sums.positive_correct
    return batch_sums.top_correct
