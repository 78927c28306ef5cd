"""Variance of observed gaps by bin: from resampled replicates, increased where a bin has too few units to estimate it.

The gap of a bin with one or two units hardly varies between resamples, and would pass for a true one. Each bin's variance is therefore
raised to that of labels at a rate near its own, times the design effect that all bins together show. Constants were chosen on half of
the settings of `benchmarks/validation` and judged on the other half.

Source: Kish (Survey Sampling, 1965) for effective sizes and design effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.inference.intervals import ResampledGaps, along_rays
from calibrant.inference.replication import ReplicateTables, resamples

_PSEUDO_UNITS = 1.0
_MIN_REPLICATES = 2.0
_MIN_MISSING = 0.15
_MIN_RATE = 1e-6


@dataclass(frozen=True)
class BinMoments:
    """What the bins of a value hold, float64 (n_tables, n_bins) each.

    Attributes
    ----------
    weight, gap : of the bins
    score : mean score, 0.5 where empty
    units : Kish's effective number of samples: squared weight over the sum of squared weights
    """

    weight: Floats
    gap: Floats
    score: Floats
    units: Floats


@dataclass(frozen=True)
class DesignEffect:
    """Variance of the gaps relative to that of independent samples.

    Attributes
    ----------
    within : over the bins
    total : of the sum over all bins, which sees dependence between bins
    n : Kish's effective number of samples divided by the larger effect
    size : Kish's effective number of samples alone, which depends on weights only
    """

    within: float
    total: float
    n: float
    size: float


class Draws(NamedTuple):
    """Random numbers of simulated gaps.

    Attributes
    ----------
    replicates : float64 (n_resamples, n_replicates), how often each one is drawn
    normal : float64 (n_resamples, n_tables, n_bins), standard normal, for variance that the replicates lack
    """

    replicates: Floats
    normal: Floats

    @classmethod
    def of(cls, n_replicates: int, shape: tuple[int, ...], seed: int) -> Draws:
        """Return the draws of a seed; queries with the same shape share them."""
        drawn = resamples(n_replicates, seed)
        return cls(drawn, _normal((len(drawn), *shape), seed))


def design_effect(tables: ReplicateTables, bins: BinMoments, least: float) -> DesignEffect:
    """Return the design effect of replicates' tables under the value's bins.

    Parameters
    ----------
    tables : with as many tables and bins as `bins`
    bins : BinMoments
    least : lower limit; 1 for single labels, less where labels are shares of several ratings
    """
    error = tables.difference - tables.weight * bins.gap
    replicates = kish(tables.weight)
    model = _label_variance(bins) * bins.weight**2
    counted = (replicates >= _MIN_REPLICATES) & (model > 0)
    observed = (error**2).sum(axis=0) * _correction(replicates)
    n = len(error)
    within = _over(float(observed[counted].sum()), float(model[counted].sum()))
    # Each table has every sample once, so that the mean over tables is the effect of one.
    overall = (error.sum(axis=2) ** 2).sum() * n / max(n - 1.0, 1.0)
    total = _over(float(overall), float(model.sum()))
    within, total = max(within, least), max(total, least)
    size = float(_kish_of(bins).mean())
    return DesignEffect(within, total, size / max(within, total, 1.0), size)


def noisy_gaps(
    tables: ReplicateTables, bins: BinMoments, effect: DesignEffect, draws: Draws
) -> ResampledGaps:
    """Return simulated observed gaps of a value's bins, with topped-up noise.

    Parameters
    ----------
    tables : with as many tables and bins as `bins`
    bins : BinMoments
    effect : of the same tables
    draws : one column of replicates for each of the tables
    """
    drawn = draws.replicates
    weight, difference = tables.drawn(drawn)
    noise = ratio(difference, weight) - tables.gap
    noise[weight <= 0] = 0.0
    noise *= np.sqrt(_correction(kish(tables.weight)))
    needed = effect.within * _label_variance(bins)
    missing = np.maximum(needed - noise.var(axis=0), 0.0)
    missing[missing < _MIN_MISSING * needed] = 0.0
    noise += draws.normal * np.sqrt(missing)
    calibrated = effect.within * ratio(bins.score * (1.0 - bins.score), bins.units)
    return along_rays(bins.weight, bins.gap, weight, noise, calibrated)


@lru_cache(maxsize=16)
def _normal(shape: tuple[int, ...], seed: int) -> Floats:
    draws = np.random.default_rng([seed, shape[0]]).standard_normal(shape)
    draws.setflags(write=False)
    return draws


def _label_variance(bins: BinMoments) -> Floats:
    """Return the variance of each bin's accuracy with independent labels, at a rate shrunk to the score by one pseudo-observation."""
    pull = _PSEUDO_UNITS * bins.score
    rate = (bins.units * (bins.score + bins.gap) + pull) / (bins.units + _PSEUDO_UNITS)
    rate = np.clip(rate, _MIN_RATE, 1.0 - _MIN_RATE)
    return ratio(rate * (1.0 - rate), bins.units)


def kish(weight: Floats) -> Floats:
    """Return Kish's effective number of weights along the first axis; (n, ...) to (...), 0 without weight."""
    return ratio(weight.sum(axis=0) ** 2, (weight**2).sum(axis=0))


def _kish_of(bins: BinMoments) -> Floats:
    """Return Kish's effective number of samples of each table."""
    squared = ratio(bins.weight**2, bins.units).sum(axis=1)
    return ratio(bins.weight.sum(axis=1) ** 2, squared)


def _correction(replicates: Floats) -> Floats:
    """Return the factor that corrects a variance about the bin's own mean for its few replicates."""
    return np.asarray(1.0 / (1.0 - 1.0 / np.maximum(replicates, _MIN_REPLICATES)))


def _over(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else 1.0
