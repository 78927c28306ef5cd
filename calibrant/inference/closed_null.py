"""Null references of statistics of gaps in closed form, without draws.

The gaps of a calibrated model are taken as independent with mean 0. Those of bins with many predictions are normal and limited to [-1, 1], as in
`null_reference.gap_null`. In bins with few, sums of absolute gaps have the moments of counts; sums of squares take all gaps as normal.
A weighted sum of absolute or squared gaps is the convolution of its summands, computed on a grid. A shifted gamma distribution with
the same mean, variance and skewness replaces the convolution of many summands, none of which dominates.

With many classes, most bins of a class have few predictions. Their counts are binomial or Poisson, with the same variance.

Compared with 200,000 draws, the errors are below the standard error of 2,000 draws (`tests/calibrant/test_closed_null.py`).

Source: the third moment, Pearson (Biometrika 1959), for sums of squares; Liu, Tang, Zhang (Computational Statistics & Data Analysis 2009).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from calibrant.core.arrays import Floats
from calibrant.inference import normal
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.null_reference import NullReference

_LEVEL = 0.95
_N_POINTS = 512
_REACH = 7.0
# A sum is convolved where fewer summands than these matter, by the kurtosis that they add; the others are taken together.
_MANY = 20.0
_MAX_CONVOLVED = 64
# Standard deviations above the mean up to which a sum is convolved.
_UPPER = 12.0
# From here on the error function is 1 in double precision. Most values of most summands are beyond it.
_CERTAIN = 6.0
# Bins with fewer trials than this, or with less variance of the number of positives, have gaps that are not normal.
_FEW_TRIALS, _LITTLE_VARIANCE = 30, 4.0
_POSITIVES = np.arange(_FEW_TRIALS + 1.0)[:, None]
# Below this skewness the gamma distribution is normal to four digits.
_MIN_SKEWNESS = 1e-4


class Factors(Protocol):
    """Factors of the absolute gaps in a sum, of the weights of their bins."""

    def __call__(self, weight: Floats, /) -> Floats:
        """Return the factors; float64 as `weight`, (n_tables, n_bins)."""


class ClosedNull(Protocol):
    """A null reference of a statistic of gaps."""

    def __call__(
        self,
        weight: Floats,
        deviation: Floats,
        ci: float,
        score: Floats | None = None,
        units: Floats | None = None,
    ) -> NullReference:
        """Return the reference.

        Parameters
        ----------
        weight, deviation : weight and standard deviation of the gap of each bin, float64 (n_tables, n_bins)
        ci : level of `limit`
        score, units : mean score of each bin, and effective number of samples, of the same shape, if bins may have few
            predictions; None: gaps are normal
        """


class Distribution(NamedTuple):
    """A distribution as values at equal distances and their probabilities, float64 (n,) each."""

    values: Floats
    share: Floats

    def quantiles(self, places: Floats) -> Floats:
        """Return quantiles; each value represents the interval to the middles of its neighbours."""
        below = np.cumsum(self.share)
        middle = np.append((self.values[1:] + self.values[:-1]) / 2.0, self.values[-1])
        return np.asarray(np.interp(places, below, middle))

    def mean_root(self, bias: float) -> float:
        """Return the mean of the root of what exceeds `bias`; each value represents an interval, over which the root is integrated."""
        half = (self.values[1] - self.values[0]) / 2.0
        high, low = (np.maximum(self.values + sign * half - bias, 0.0) ** 1.5 for sign in (1, -1))
        return float(self.share @ (high - low) / (3.0 * half) / self.share.sum())


class Gamma(NamedTuple):
    """A shifted gamma distribution by mean, standard deviation and skewness; normal where the skewness is about 0."""

    mean: float
    deviation: float
    skewness: float

    def quantiles(self, places: Floats) -> Floats:
        """Return quantiles; float64 as `places`."""
        if self.skewness < _MIN_SKEWNESS:
            return np.asarray(self.mean + self.deviation * scipy.special.ndtri(places))
        shape, scale = self._form
        return np.asarray(self.mean + scale * (scipy.special.gammaincinv(shape, places) - shape))

    def below(self, values: Floats) -> Floats:
        """Return the distribution function; float64 as `values`."""
        if not self.deviation:
            return np.asarray(values >= self.mean, np.float64)
        standard = (values - self.mean) / self.deviation
        if self.skewness < _MIN_SKEWNESS:
            return np.asarray(scipy.special.ndtr(standard))
        shape, _ = self._form
        return np.asarray(
            scipy.special.gammainc(shape, np.maximum(shape + standard * np.sqrt(shape), 0.0))
        )

    @property
    def _form(self) -> tuple[float, float]:
        return 4.0 / self.skewness**2, self.deviation * self.skewness / 2.0


class Summands(NamedTuple):
    """Independent summands factor · |gap|^power, with the standard deviation of each gap, and its mean score; float64 (n,)."""

    factor: Floats
    deviation: Floats
    power: int
    score: Floats | None = None

    @classmethod
    def of(
        cls, coefficient: Floats, spread: Floats, power: int, score: Floats | None = None
    ) -> Summands:
        """Return the summands that vary, the largest first."""
        used = (spread > 0) & (coefficient > 0)
        factor, deviation = coefficient[used], spread[used]
        order = np.argsort(-factor * deviation**power, kind="stable")
        scores = None if score is None else score[used][order]
        return cls(factor[order], deviation[order], power, scores)

    def gamma(self, first: int = 0) -> Gamma:
        """Return the approximate distribution of the sum from one summand on."""
        factor, deviation = self.factor[first:], self.deviation[first:]
        moments = normal.limited_moments(deviation, self.power)
        if self.score is not None and self.power == 1:
            moments = _with_few(moments, deviation, self.score[first:])
        one, two, three = moments
        variance = float(factor**2 @ (two - one**2))
        if variance <= 0:
            return Gamma(float(factor @ one), 0.0, 0.0)
        third = float(factor**3 @ (three - 3.0 * one * two + 2.0 * one**3))
        skewness = max(third, 0.0) / variance**1.5
        return Gamma(float(factor @ one), float(np.sqrt(variance)), skewness)

    @property
    def n_effective(self) -> float:
        """Number of equal summands with the same concentration of variance."""
        variance = (self.factor * self.deviation**self.power) ** 2
        return float(variance.sum() ** 2 / (variance**2).sum())

    def convolved(self, gamma: Gamma) -> Distribution:
        """Return the distribution of the sum on a grid; the smallest summands are taken together."""
        step = (gamma.mean + _UPPER * gamma.deviation) / _N_POINTS
        values = np.arange(_N_POINTS, dtype=np.float64) * step
        ends = values + 0.5 * step
        factor = self.factor[:_MAX_CONVOLVED, None]
        deviation = self.deviation[:_MAX_CONVOLVED, None]
        gap = (ends / factor) ** (1.0 / self.power)
        reach = gap / (deviation * np.sqrt(2.0))
        varies = (gap < 1.0) & (reach < _CERTAIN)
        below = np.ones_like(gap)
        below[varies] = normal.erf(reach[varies])
        if len(self.factor) > _MAX_CONVOLVED:
            below = np.vstack([below, self.gamma(_MAX_CONVOLVED).below(ends)])
        share = below.copy()
        share[:, 1:] -= below[:, :-1]
        # Twice the length: values beyond the end do not return to the start.
        waves = np.fft.rfft(share, 2 * _N_POINTS, axis=1).prod(axis=0)
        found = np.maximum(np.fft.irfft(waves, 2 * _N_POINTS)[:_N_POINTS], 0.0)
        # Each summand was rounded to the grid: the mean is known.
        return Distribution(values + gamma.mean - found @ values / found.sum(), found)


def sum_null_of_gaps(coefficient: Factors) -> ClosedNull:
    """Return the reference of a sum of absolute gaps.

    Parameters
    ----------
    coefficient : of weights, float64 (n_tables, n_bins), to the factors of the absolute gaps, of the same shape

    Examples
    --------
    One bin: the absolute value of a normal, with mean √(2/π) and 95 % quantile 1.96 standard deviations.

    >>> null = sum_null_of_gaps(lambda weight: weight)(np.ones((1, 1)), np.full((1, 1), 0.01), 0.95)
    >>> round(null.mean, 5), round(null.q95, 4)
    (0.00798, 0.0196)
    """

    def null(
        weight: Floats,
        deviation: Floats,
        ci: float,
        score: Floats | None = None,
        units: Floats | None = None,
    ) -> NullReference:
        summands = Summands.of(coefficient(weight), deviation, 1, score)
        gamma = summands.gamma()
        exact = gamma.deviation > 0 and summands.n_effective < _MANY
        found = summands.convolved(gamma) if exact else gamma
        q95, limit = found.quantiles(np.array([_LEVEL, 0.5 + ci / 2.0])).tolist()
        return NullReference(gamma.mean, q95, 0.0, limit)

    return null


def root_null_of_squares(coefficient: Factors, bias: float) -> ClosedNull:
    """Return the reference of the root of a sum of squared gaps minus a constant, at least 0.

    Parameters
    ----------
    coefficient : as in `sum_null_of_gaps`
    bias : the constant
    """

    def null(
        weight: Floats,
        deviation: Floats,
        ci: float,
        score: Floats | None = None,
        units: Floats | None = None,
    ) -> NullReference:
        summands = Summands.of(coefficient(weight), deviation, 2)
        gamma = summands.gamma()
        if not gamma.deviation:
            root = _root(gamma.mean - bias)
            return NullReference(root, root, 0.0, root)
        # Always convolved: the mean of the root depends on small sums, which a gamma distribution does not describe as well.
        found = summands.convolved(gamma)
        q95, limit = found.quantiles(np.array([_LEVEL, 0.5 + ci / 2.0])).tolist()
        mean = found.mean_root(bias)
        return NullReference(mean, _root(q95 - bias), 0.0, _root(limit - bias))

    return null


def null_of_sum(gaps: GapSum, bias: float = 0.0) -> ClosedNull:
    """Return the reference of a sum of absolute gaps, or of the root of a sum of squares less a bias."""
    if gaps.power == 1:
        return sum_null_of_gaps(gaps.coefficient)
    return root_null_of_squares(gaps.coefficient, bias)


def _root(value: float) -> float:
    return float(np.sqrt(max(value, 0.0)))


def _with_few(moments: Floats, deviation: Floats, score: Floats) -> Floats:
    """Return the first three moments of absolute gaps, where few predictions make them unlike a normal gap.

    The number of positives of a bin is binomial with as many trials as its variance implies, or Poisson where these are many and nearly
    all have the same outcome. Its moments are scaled to the bin's variance.

    Parameters
    ----------
    moments : of normal gaps, float64 (3, n)
    deviation, score : standard deviation and mean score of each bin, float64 (n,)
    """
    p = np.clip(np.minimum(score, 1.0 - score), 0.0, 0.5)
    chance = p * (1.0 - p)
    trials = np.maximum(chance / deviation**2, 1.0)
    few = (chance > 0) & ((trials < _FEW_TRIALS) | (trials * chance < _LITTLE_VARIANCE))
    if not few.any():
        return moments
    n, p = np.asarray(np.round(trials[few]), np.float64), p[few]
    share = np.exp(_log_shares(n, p))
    gap = np.abs(_POSITIVES - n * p)
    found = np.stack([(share * power).sum(axis=0) for power in (gap, gap**2, gap**3)])
    scale = deviation[few] / np.sqrt(found[1])
    result = moments.copy()
    result[:, few] = found * scale ** np.arange(1.0, 4.0)[:, None]
    return result


def _log_shares(n: Floats, p: Floats) -> Floats:
    """Return log-probabilities of 0 to 30 positives of n trials, float64 (31, len(n)): binomial, or Poisson from 30 trials on."""
    log_factorials, log_ways = _logarithms()
    found, many = np.empty((len(_POSITIVES), len(n))), n >= _FEW_TRIALS
    some, chance = n[~many], p[~many]
    found[:, ~many] = log_ways[:, some.astype(np.int64)] + _POSITIVES * np.log(chance)
    found[:, ~many] += (some - _POSITIVES) * np.log1p(-chance)
    if many.any():
        mean = n[many] * p[many]
        found[:, many] = _POSITIVES * np.log(mean) - mean - log_factorials
    return found


@lru_cache(maxsize=1)
def _logarithms() -> tuple[Floats, Floats]:
    """Return log k! of 0 to 30 positives, float64 (31, 1), and the log-number of ways to choose k of n trials, (31, 30)."""
    k, n = np.arange(_FEW_TRIALS + 1)[:, None], np.arange(_FEW_TRIALS)
    factorial = np.array([math.lgamma(each + 1.0) for each in range(_FEW_TRIALS + 1)])
    ways = factorial[n] - factorial[np.maximum(n - k, 0)] - factorial[k]
    return factorial[k], np.where(n >= k, ways, -np.inf)
