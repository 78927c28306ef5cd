"""ECE between two stored temperatures: the scores of one table moved towards those of the next.

ECE is not smooth. Between two stored tables the scores are moved from their quantiles in one to the same quantiles in the
other, linearly in log odds, which is exactly the effect of a change of temperature for two classes.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.temperature import TABLE_BINS
from calibrant.core.arrays import Floats, ratio
from calibrant.core.grid import equal_width_bin

PARTICLES = 256


def moved_eces(
    before: Floats,
    after: Floats,
    beta0: float,
    beta1: float,
    betas: Floats,
    bins: int,
    min_count: float = 0.0,
) -> Floats:
    """Return the ECE between two tables (3, 60) of count, confidence and correct, by moving quantiles in log odds.

    Bins with a count below the minimum are left out; nan where no bin remains.
    """
    knots = np.unique(
        np.concatenate([_mass(before), _mass(after), np.arange(PARTICLES + 1) / PARTICLES])
    )
    knots = knots[np.concatenate([[True], np.diff(knots) > 1e-12])]
    size = np.diff(knots)
    odds, correct = [], []
    for table in (before, after):
        mean = np.diff(_cumulated_confidence(table, knots)) / size
        mean = np.clip(mean, 1e-300, 1.0 - 1e-16)
        odds.append(np.log(mean) - np.log1p(-mean))
        cumulated = np.concatenate([[0.0], np.cumsum(table[2])]) / table[0].sum()
        correct.append(np.diff(np.interp(knots, *_steps(_mass(table), cumulated))))
    share = ((betas - beta0) / (beta1 - beta0))[:, None]
    part = (np.log(betas / beta0) / np.log(beta1 / beta0))[:, None]
    moved = (1.0 - share) * odds[0] + share * odds[1]
    score = 1.0 / (1.0 + np.exp(-np.clip(moved, -700.0, 700.0)))
    gap = (1.0 - part) * correct[0] + part * correct[1] - size * score
    place = equal_width_bin(score, bins) + bins * np.arange(len(betas))[:, None]
    total = before[0].sum()

    def by_bin(values: Floats) -> Floats:
        flat = np.broadcast_to(values, score.shape).ravel()
        summed = np.bincount(place.ravel(), flat, len(betas) * bins)
        return np.asarray(total * summed.reshape(-1, bins), np.float64)

    return stored_ece(by_bin(size), by_bin(gap), min_count)


def stored_ece(count: Floats, gap: Floats, min_count: float) -> Floats:
    """Return the ECE of bins that have at least the minimum count; (..., bins) to (...), nan where there are none.

    Examples
    --------
    >>> stored_ece(np.array([40.0, 60.0]), np.array([8.0, -6.0]), 50.0).tolist()
    0.1
    """
    kept = (count > 0.0) & (count >= min_count * (1.0 - 1e-9))
    total = np.where(kept, count, 0.0).sum(axis=-1)
    gaps = np.where(kept, np.abs(gap), 0.0).sum(axis=-1)
    return ratio(gaps, total, np.nan)


def plateau(temperatures: Floats, values: Floats, best: int, tolerance: float) -> list[float]:
    """Return the ends of the temperatures around the best one whose values are within a tolerance of its own."""
    worse = np.flatnonzero(~(values <= values[best] + tolerance))
    first = worse[worse < best].max(initial=-1) + 1
    last = worse[worse > best].min(initial=len(values)) - 1
    return [float(temperatures[first]), float(temperatures[last])]


def _mass(table: Floats) -> Floats:
    """Return the share of the weight at or below each edge of the 60 bins, (61,)."""
    running = np.concatenate([[0.0], np.cumsum(table[0])])
    return np.asarray(running / running[-1])


def _steps(mass: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return points for `np.interp` without those of empty bins."""
    keep = np.concatenate([[True], np.diff(mass) > 0])
    return mass[keep], values[keep]


def _cumulated_confidence(table: Floats, at: Floats) -> Floats:
    """Return the sum of confidence below a share of the weight; inside a bin a power law of the rank has its ends and mean."""
    mass = _mass(table)
    filled = np.flatnonzero(table[0] > 0)
    bin_ = filled[np.clip(np.searchsorted(mass[filled + 1], at), 0, len(filled) - 1)]
    count, confidence = table[0] / table[0].sum(), table[1] / table[0].sum()
    low = bin_ / TABLE_BINS
    mean = confidence[bin_] / count[bin_]
    above = np.clip((mean - low) * TABLE_BINS, 1e-9, 1.0 - 1e-9)
    power = 1.0 / above - 1.0
    rank = np.clip((at - mass[bin_]) / count[bin_], 0.0, 1.0)
    inside = low * rank + rank ** (power + 1.0) * above / TABLE_BINS
    return np.asarray(np.cumsum(np.concatenate([[0.0], confidence]))[bin_] + count[bin_] * inside)
