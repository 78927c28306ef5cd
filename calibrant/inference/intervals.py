"""Intervals from replicates: units are resampled, never single rows.

A calibration error is a sum of absolute gaps, so its plain estimate is above the truth where the truth is small, and a naive bootstrap
interval misses 0. Here the interval is the set of truths that the estimate does not contradict. True gaps are placed along two rays, and
resampled noise is added. One ray has a true gap in each bin: the observed one, enlarged by its noise. The other has true gaps only in the
bins whose gaps chance does not explain: the noise of all other bins then raises the estimate. The interval consists of those lengths of
either ray for which the observed estimate is within the central part of the resulting distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.documents import Extra
from calibrant.inference import normal
from calibrant.inference.gap_sums import GapSum, by_bin
from calibrant.inference.replication import ReplicateTables, resamples

GapStatistic = Callable[[Any, Any], Any]
INTERVAL_METHOD = (
    "bootstrap of 64 unit replicates, sparse bins topped up to their binomial variance, "
    "inverted along all observed gaps and along the significant ones"
)
BIASED = "biased upward at this n"
MAY_BE_ABOVE = "chance raises the value of a small error, so the value can be above the interval, which is that of `corrected`"
RANGE_CAUTION = "spread of resampled units; there are too few for an interval, so it contains the true value less often than `ci`"
INTERVAL_OF = f"the population's value of this metric over the same bins; {MAY_BE_ABOVE}"
JACKKNIFE = "jackknife of 64 unit replicates"
RATIO_OF = "the population's value of this metric"
_MIN_FREEDOM = 4.0
_ROUNDING = 1e-10
_MOSTLY = 0.9
# Place, among likely values of an error of 0, of the one that replaces values below all of these: one standard deviation below the median.
_USUAL = 0.16
_SIGNIFICANCE = 0.05
_LENGTHS = np.array([0.0, 0.25, 0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0, 3.2])


@dataclass(frozen=True)
class ResampledGaps:
    """Noise of observed gaps, and true gaps of length 1 along each ray.

    Attributes
    ----------
    total : float64 (n_tables, n_bins), weight of all replicates together
    gap : float64 (n_tables, n_bins), the observed gaps
    rays : float64 (n_rays, n_tables, n_bins), true gaps
    weight : float32 (1, n_resamples, n_tables, n_bins)
    noise : float32 (n_resamples, n_tables, n_bins)
    """

    total: Floats
    gap: Floats
    rays: Floats
    weight: NDArray[np.float32]
    noise: NDArray[np.float32]

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int(self.gap.shape[-1])

    @cached_property
    def noise_by_bin(self) -> NDArray[np.float32]:
        """The noise as float32 (n_tables * n_bins, n_resamples)."""
        return by_bin(self.noise)

    def within(self, mask: NDArray[np.bool_]) -> ResampledGaps:
        """Return the same gaps with zeros outside the mask; bool (n_tables, n_bins)."""
        return ResampledGaps(
            self.total * mask,
            self.gap * mask,
            self.rays * mask,
            self.weight * mask,
            self.noise * mask,
        )


def resampled_gaps(tables: ReplicateTables, seed: int) -> ResampledGaps:
    """Resample complete replicates and place the truth along the observed gaps.

    Parameters
    ----------
    tables : ReplicateTables, at least two replicates
    seed : of the resamples
    """
    n = len(tables.weight)
    drawn = resamples(n, seed)
    weight, difference = tables.drawn(drawn)
    total = tables.weight.sum(axis=0)
    gap = ratio(tables.difference.sum(axis=0), total)
    noise = (ratio(difference, weight) - gap) * np.sqrt(n / (n - 1.0))
    noise[weight <= 0] = 0.0
    return along_rays(total, gap, weight, noise)


def along_rays(
    total: Floats, gap: Floats, weight: Floats, noise: Floats, calibrated: Floats | None = None
) -> ResampledGaps:
    """Place the truth along all observed gaps, and along the significant ones.

    Parameters
    ----------
    total, gap : float64 (n_tables, n_bins)
    weight, noise : float64 (n_resamples, n_tables, n_bins), the resampled weights and the noise of the gaps
    calibrated : float64 (n_tables, n_bins), variance of the gaps of a calibrated model, if it is known
    """
    variance = noise.var(axis=0)
    # A gap that is 0 but for rounding has one direction, whatever the order of the additions.
    every = np.where(gap < -_ROUNDING, -1.0, 1.0) * np.sqrt(gap**2 + variance)
    largest = variance if calibrated is None else np.maximum(variance, calibrated)
    few = gap * _significant(gap, largest, total > 0)
    # Single precision: quantiles of noise need no more, and these are the largest arrays of a result.
    return ResampledGaps(
        total,
        gap,
        np.stack([every, few]),
        weight.astype(np.float32)[None],
        noise.astype(np.float32),
    )


def _significant(gap: Floats, variance: Floats, filled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the bins whose gaps chance does not explain, at least the most significant one (Bonferroni over all filled bins)."""
    squares = np.divide(gap**2, variance, out=np.zeros_like(gap), where=filled & (variance > 0))
    n_bins = max(int(np.count_nonzero(filled)), 1)
    limit = normal.quantile(1.0 - _SIGNIFICANCE / (2.0 * n_bins)) ** 2
    return np.asarray(squares >= min(limit, float(squares.max(initial=0.0))))


class GapInterval(NamedTuple):
    """What an inversion gives.

    Attributes
    ----------
    bounds : lower and upper bound
    corrected : the truth along all observed gaps under which the observed value is the median
    """

    bounds: tuple[float, float]
    corrected: float

    def correction(self, observed: float) -> Extra:
        """Return `corrected`, and `bias` where more than a tenth of the observed value is due to chance."""
        found: Extra = {"corrected": self.corrected}
        return found | ({"bias": BIASED} if self.corrected < _MOSTLY * observed else {})


def gap_interval(
    statistic: GapStatistic, of_truth: GapStatistic, gaps: ResampledGaps, ci: float
) -> GapInterval:
    """Return the interval of a statistic of gaps: the truths that the observed value does not contradict.

    A value that is less than chance leaves, even of an error of 0, would contradict every truth, as in-sample errors of a fitted map do.
    The upper bound is then that of a value one standard deviation below the median of an error of 0.

    Parameters
    ----------
    statistic : of weight and gap, each float64 (..., n_tables, n_bins), to float64 (...)
    of_truth : the same of true gaps; differs where the statistic subtracts a bias
    gaps : ResampledGaps
    ci : nominal coverage
    """
    observed = float(statistic(gaps.total, gaps.gap))
    lowers, uppers, middles = [], [], []
    truths = _LENGTHS[:, None, None] * gaps.rays[:, None]
    for truth, drawn in zip(truths, _simulated(statistic, gaps, truths), strict=True):
        values = np.sort(drawn, axis=1)
        size = of_truth(gaps.total, truth)
        place = round((1.0 - ci) / 2.0 * (values.shape[1] - 1))
        lowers.append(_reached(values[:, -1 - place], size, observed))
        usual = values[0, round(_USUAL * (values.shape[1] - 1))]
        likely = observed if observed > values[0, place] else float(usual)
        uppers.append(-_reached(-values[::-1, place], -size[::-1], -likely))
        middle = values.shape[1] // 2
        medians = (values[:, middle] + values[:, -1 - middle]) / 2.0
        middles.append(_reached(medians, size, observed))
    lower, upper = min(lowers), max(uppers)
    return GapInterval((lower, max(upper, lower)), middles[0])


def simulated_at(
    statistic: GapStatistic, of_truth: GapStatistic, gaps: ResampledGaps, size: float
) -> Floats:
    """Return simulated values of a statistic whose true value is `size`, along all observed gaps; float64 (n_resamples,)."""
    unit = float(of_truth(gaps.total, gaps.rays[0]))
    length = size / unit if unit > 0 else 0.0
    truths = length * gaps.rays[:1, None]
    return np.asarray(next(_simulated(statistic, gaps, truths))[0], np.float64)


def _simulated(
    statistic: GapStatistic, gaps: ResampledGaps, truths: Floats
) -> Iterator[NDArray[Any]]:
    """Yield the statistic of every truth of a ray with the noise of every resample, (n_truths, n_resamples)."""
    single = truths.astype(np.float32)
    if not isinstance(statistic, GapSum):
        for truth in single:
            yield statistic(gaps.weight, truth[:, None] + gaps.noise)
        return
    factors = by_bin(statistic.coefficient(gaps.weight[0]))
    for truth in single:
        yield statistic.simulated(factors, truth.reshape(len(truth), -1), gaps.noise_by_bin)


def ratio_interval(numerator: Floats, denominator: Floats, ci: float) -> tuple[float, float]:
    """Return the interval of a ratio of sums by the jackknife over replicates.

    Parameters
    ----------
    numerator, denominator : float64 (n,), each replicate's sums
    ci : nominal coverage

    Returns
    -------
    lower and upper bound, symmetric about the ratio
    """
    top, bottom = numerator.sum(), denominator.sum()
    return jackknife_interval(top / bottom, (top - numerator) / (bottom - denominator), ci)


def jackknife_interval(value: float, left_out: Floats, ci: float) -> tuple[float, float]:
    """Return the interval of a smooth function of sums by the jackknife over replicates.

    Parameters
    ----------
    value : of all replicates together
    left_out : float64 (n,), the function without each replicate
    ci : nominal coverage

    Returns
    -------
    lower and upper bound, symmetric about the value
    """
    n = len(left_out)
    squares = (left_out - left_out.mean()) ** 2
    error = np.sqrt((n - 1) / n * squares.sum())
    reach = scipy.special.stdtrit(_freedom(squares), 0.5 + ci / 2.0) * error
    return float(value - reach), float(value + reach)


def _freedom(squares: Floats) -> float:
    """Return degrees of freedom of a variance from squared deviations: fewer where some replicates dominate.

    The relative variance of a sample variance is (kurtosis - 1) / n, and 2 / degrees of freedom for Student's t.

    Source
    ------
    Satterthwaite (Biometrics Bulletin 1946).
    """
    n = len(squares)
    mean = squares.mean()
    if not mean > 0:
        return n - 1.0
    kurtosis = float((squares**2).mean() / mean**2)
    return float(np.clip(2.0 * n / max(kurtosis - 1.0, 1e-9), _MIN_FREEDOM, n - 1.0))


def _reached(quantile: Floats, truth: Floats, observed: float) -> float:
    """Return the first truth, in order, at which `quantile` is at least the observed value; the last if there is none."""
    enough = np.flatnonzero(quantile >= observed)
    if not len(enough):
        return float(truth[-1])
    i = int(enough[0])
    if i == 0:
        return float(truth[0])
    part = (observed - quantile[i - 1]) / (quantile[i] - quantile[i - 1])
    return float(truth[i - 1] + part * (truth[i] - truth[i - 1]))
