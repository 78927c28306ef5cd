"""Bounds on the mean mapped score of each bin, where only the sums of the bin are stored.

A pane stores each unit's share of 60 bins of the score, and their mean score, but no single scores. For a map that never
decreases, the mean over a bin is between the map's convex and concave hull at the bin's mean score. Evidence that takes
the worse bound for each bet is still evidence: its cost increases with the score for a bet on "more", and decreases for a
bet on "less".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.core.grid import equal_width_bin
from calibrant.drift.mapped_scores import table_at
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable

Floats = NDArray[np.float64]
_STEPS = 64  # per bin; between two steps, the map takes its worse end


def bounded_table(
    table: UnitTable, mapping: Callable[[Floats], Floats], bins: int = DRIFT_BINS
) -> tuple[UnitTable, Floats] | None:
    """Return a table of scores as sent, moved to mapped scores.

    Parameters
    ----------
    table : UnitTable, the finer the better
    mapping : scores (n,) in [0, 1] to mapped scores (n,)
    bins : of the result

    Returns
    -------
    UnitTable of `bins` bins, and slack, float64 (2, bins): sums of weight times the error bound of the mean score below
    and above; None if the map decreases somewhere.

    Examples
    --------
    >>> ones = np.ones(60)
    >>> same, slack = bounded_table(UnitTable(ones, (np.arange(60) + 0.5) / 60, ones, ones, ones), lambda score: score)
    >>> same.weight.tolist()[:2], bool(slack.max() < 0.002)
    ([4.0, 4.0], True)
    """
    n = table.n_bins
    points = np.clip(mapping(np.linspace(0.0, 1.0, n * _STEPS + 1)), 0.0, 1.0)
    if (np.diff(points) < -1e-12).any():
        return None
    middle = (np.arange(n) + 0.5) / n
    mean = np.clip(
        np.where(table.weight > 0, table.mean_confidence, middle),
        np.arange(n) / n,
        (np.arange(n) + 1) / n,
    )
    low, high = np.empty(n), np.empty(n)
    for k in range(n):
        inside = points[k * _STEPS : (k + 1) * _STEPS + 1]
        at = np.linspace(k / n, (k + 1) / n, _STEPS + 1)
        high[k] = _hull(at, np.append(inside[1:], inside[-1]), float(mean[k]))
        low[k] = -_hull(at, -np.append(inside[0], inside[:-1]), float(mean[k]))
    likely = np.clip(mapping(mean), low, high)
    place = equal_width_bin(likely, bins)
    distances = (likely - low, high - likely)
    slack = [np.bincount(place, table.weight * each, bins).astype(np.float64) for each in distances]
    return table_at(table, likely, bins), np.stack(slack)


def _hull(at: Floats, values: Floats, mean: float) -> float:
    """Return the concave hull of points at a mean: the largest possible average there."""
    left, right = np.flatnonzero(at <= mean + 1e-15), np.flatnonzero(at >= mean - 1e-15)
    gap = at[right][None, :] - at[left][:, None]
    share = np.divide(at[right][None, :] - mean, gap, out=np.ones_like(gap), where=gap > 1e-15)
    return float((share * values[left][:, None] + (1.0 - share) * values[right][None, :]).max())
