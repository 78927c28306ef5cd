"""Null reference of the largest gap, with counts of bins with few predictions as counts and not as normal variables.

The distribution function of the largest of independent gaps is a product. In a bin with few predictions, or with little variance of its
number of positives, the gap is that of a binomial count of its effective samples. The normal approximation has too
little probability in these tails: with it, calibrated models of 150 predictions exceeded the 95 % quantile of the largest of 15 gaps in 10 % of runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from calibrant.core.arrays import Floats
from calibrant.inference.null_reference import NullReference

_LEVEL = 0.95
_REACH = 7.0
_N_POINTS = 128
_N_REFINED = 5
# Counts with at least so much variance, in bins of at least so many trials, are normal enough in the tail that decides.
_MIN_VARIANCE, _MIN_TRIALS = 9.0, 30.0
_WHOLE = 1e-6
# A gap that equals the quantile is not above it: larger than the rounding of a gap, smaller than any distance of two.
_ROUNDING = 1e-9


class GapCounts(NamedTuple):
    """Bins that vary: those whose gaps are normal, by standard deviation, and those of few trials; float64 (n,) each."""

    deviation: Floats
    trials: Floats
    score: Floats

    @classmethod
    def of(cls, deviation: Floats, score: Floats | None, units: Floats | None) -> GapCounts:
        """Return the bins that vary.

        Parameters
        ----------
        deviation : standard deviation of each bin's gap, 0 where it has none
        score, units : mean score of each bin and its effective number of samples; None: gaps are normal
        """
        varies = deviation > 0
        spread = deviation[varies]
        if score is None or units is None:
            return cls(spread, np.zeros(0), np.zeros(0))
        rate = np.clip(score[varies], 0.0, 1.0)
        chance = rate * (1.0 - rate)
        # Different scores of a bin make its variance smaller, dependent labels larger. Gaps have the steps of whole samples.
        trials = np.floor(np.minimum(units[varies], chance / spread**2) * (1.0 + _WHOLE))
        trials = np.maximum(trials, 1.0)
        few = (chance > 0) & ((trials < _MIN_TRIALS) | (trials * chance < _MIN_VARIANCE))
        return cls(spread[~few], trials[few], rate[few])

    @property
    def reach(self) -> float:
        """A gap that hardly any bin exceeds."""
        return 1.0 if len(self.trials) else min(1.0, _REACH * float(self.deviation.max()))

    def within(self, gaps: Floats) -> Floats:
        """Return the probability that no gap is above each of these; float64 (n,)."""
        normal = scipy.special.erf(gaps[:, None] / (self.deviation * np.sqrt(2.0))).prod(axis=1)
        far = (gaps[:, None] + _ROUNDING) * self.trials
        middle = self.trials * self.score
        most = np.minimum(np.floor(middle + far), self.trials)
        least = np.ceil(middle - far) - 1.0
        counts = np.maximum(self._below(most) - self._below(least), 0.0).prod(axis=1)
        return np.where(gaps >= 1.0, 1.0, normal * counts)

    def _below(self, count: Floats) -> Floats:
        """Return the probability of at most so many positives of each bin; 0 of a negative number."""
        trials = self.trials.astype(np.int64)
        found = scipy.special.bdtr(np.maximum(count, 0.0), trials, self.score)
        return np.where(count < 0, 0.0, found)

    def quantile(self, level: float) -> float:
        """Return the smallest gap that is not exceeded with this probability."""
        low, high = 0.0, 1.0
        for _ in range(_N_REFINED):
            points = np.linspace(low, high, _N_POINTS + 1)
            place = int((self.within(points[1:-1]) < level).sum())
            low, high = float(points[place]), float(points[place + 1])
        return min(high + _ROUNDING, 1.0)


def largest_gap_null(
    weight: Floats,
    deviation: Floats,
    ci: float,
    score: Floats | None = None,
    units: Floats | None = None,
) -> NullReference:
    """Return the reference of the largest absolute gap; parameters as in `closed_null.ClosedNull`.

    Examples
    --------
    >>> null = largest_gap_null(np.ones((1, 1)), np.full((1, 1), 0.01), 0.95)
    >>> round(null.mean, 5), round(null.q95, 4)
    (0.00798, 0.0196)

    One prediction of .9: its gap is .9 with probability .1, and else .1.

    >>> null = largest_gap_null(np.ones((1, 1)), np.full((1, 1), 0.3), 0.95, np.full((1, 1), 0.9), np.ones((1, 1)))
    >>> round(null.mean, 2), round(null.q95, 4)
    (0.18, 0.9)
    """
    found = np.where(weight > 0, deviation, 0.0)
    if not (found > 0).any():
        return NullReference(0.0, 0.0, 0.0, 0.0)
    counts = GapCounts.of(found, score, units)
    points = np.linspace(0.0, counts.reach, _N_POINTS + 1)
    below = counts.within(points)
    mean = float(np.trapezoid(1.0 - below, points))
    limit = counts.quantile(0.5 + ci / 2.0)
    return NullReference(mean, counts.quantile(_LEVEL), 0.0, limit)
