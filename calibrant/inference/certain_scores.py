"""Scores of exactly 0 or 1, which have no log-odds: no shift or temperature changes them."""

from __future__ import annotations

from calibrant.core.arrays import Floats

MOST = 0.5
# Sums in four bytes are as exact as this.
_EQUAL = 1e-6


def certain_scores(weight: Floats, mean: Floats) -> dict[str, float] | None:
    """Return the share of units in bins whose scores are all 0 or all 1, as `certain_share`; None if it is at most one half.

    >>> import numpy as np
    >>> certain_scores(np.array([30.0, 10.0, 60.0]), np.array([0.0, 0.4, 1.0]))
    {'certain_share': 0.9}
    """
    total = float(weight.sum())
    is_certain = (weight > 0) & ((mean < _EQUAL) | (mean > 1.0 - _EQUAL))
    share = float(weight[is_certain].sum()) / total if total else 0.0
    return {"certain_share": share} if share > MOST else None
