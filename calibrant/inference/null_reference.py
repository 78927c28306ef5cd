"""Null reference: the distribution of the estimate for a perfectly calibrated model, with labels drawn from the predictions.

In a bin, outcomes minus confidence then has mean 0 and the stored variance, in which all contributions of a unit are fully dependent: exact
where each prediction is a unit, the worst case where units were named (`unit_null` has the reference for those). Sums of bins are taken
as normal, outcomes of cells are drawn. The draws are seeded, so that results repeat. `closed_null` has statistics that need no draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells, equal_mass_groups
from calibrant.inference.intervals import GapStatistic

ASSUMPTION = "labels drawn from the predictions; a unit's ratings and predictions fully dependent; sums of bins normal, or of counts where few"
DRAWN = "labels drawn from the predictions; a unit's ratings and predictions fully dependent; binomial sums of cells"
N_DRAWS = 2000
_MAX_UNGROUPED = 2000
_MAX_CELLS = 1000
_TOGETHER, _MAX_SHARED = 1 << 18, 1 << 20
_NORMAL_FROM = 4.0
# A count of more samples is normal to three digits.
_MAX_COUNTED = 2000
_Z95 = 1.6448536269514722


class NullReference(NamedTuple):
    """Mean and 95 % quantile of a metric for a calibrated model.

    `q95_error` is the standard error of the quantile from the number of draws, 0 for a closed form. `limit` is the upper end of the
    central part of the requested level, where draws are available.
    """

    mean: float
    q95: float
    q95_error: float | None = None
    limit: float | None = None


def gap_null(
    statistic: GapStatistic, weight: Floats, variance: Floats, seed: int, ci: float = 0.95
) -> NullReference:
    """Return the null reference of a statistic of gaps.

    Parameters
    ----------
    statistic : as in `intervals.gap_interval`
    weight, variance : float64 (n_tables, n_bins), weight and variance of outcomes minus confidence
    seed : of the draws
    ci : level of `limit`
    """
    spread = ratio(np.sqrt(np.maximum(variance, 0.0)), weight)
    # A gap is in [-1, 1] whatever its variance; the conservative variance of large units can exceed that.
    found = [
        statistic(weight[None], np.clip(some * spread, -1.0, 1.0))
        for some in _normal_pieces(weight.shape, seed)
    ]
    return quantiles_of(np.concatenate(found), ci)


def _normal_pieces(shape: tuple[int, ...], seed: int) -> Iterator[Floats]:
    """Yield the draws of `normal_draws`, some at a time. Many are not kept: every metric draws them again."""
    size = N_DRAWS * math.prod(shape)
    if size <= _MAX_SHARED:
        yield from _pieces(normal_draws(shape, seed))
        return
    draws = np.random.default_rng(seed)
    for some in np.array_split(np.empty((N_DRAWS, 0)), -(-size // _TOGETHER)):
        yield draws.standard_normal((len(some), *shape))


def piecewise(function: Callable[[Floats], Floats], draws: Floats) -> Floats:
    """Return what a function of draws returns, (n_draws, ...) to (n_draws,), with the memory of few draws at a time."""
    return np.concatenate([function(some) for some in _pieces(draws)])


def _pieces(draws: Floats) -> list[Floats]:
    """Return views of some draws each."""
    return np.array_split(draws, max(-(-draws.size // _TOGETHER), 1))


@lru_cache(maxsize=4)
def normal_draws(shape: tuple[int, ...], seed: int, n_draws: int = N_DRAWS) -> Floats:
    """Return standard normal draws, (n_draws, *shape), shared by the metrics of one result."""
    draws = np.random.default_rng(seed).standard_normal((n_draws, *shape))
    draws.setflags(write=False)
    return draws


def sum_null(expected: float, variance: float, weight: float) -> NullReference:
    """Return the closed form for a mean whose sum has this expectation and variance under the null."""
    reach = _Z95 * float(np.sqrt(max(variance, 0.0)))
    return NullReference(expected / weight, (expected + reach) / weight, 0.0)


def count_null(expected: float, variance: float, weight: float, size: float) -> NullReference:
    """Return the reference of a share of predictions: that of a binomial count of the effective samples.

    Parameters
    ----------
    expected, variance, weight : of the sum, as in `sum_null`
    size : effective number of samples

    Examples
    --------
    Three predictions of .8: all are correct in more than 5 % of samples.

    >>> count_null(2.4, 0.48, 3.0, 3.0).q95
    1.0
    """
    normal, rate = sum_null(expected, variance, weight), min(max(expected / weight, 0.0), 1.0)
    chance = rate * (1.0 - rate)
    if variance <= 0 or not chance:
        return normal
    samples = min(size, chance * weight**2 / variance)
    n = max(math.floor(samples * (1.0 + 1e-6)), 1)
    if n > _MAX_COUNTED:
        return normal
    below = scipy.special.bdtr(np.arange(n + 1.0), n, rate)
    place = min(int(np.searchsorted(below, 0.95)), n)
    # A share that equals the quantile is not above it, whatever the rounding of either.
    return NullReference(normal.mean, min(place / n * (1.0 + 1e-12), 1.0), 0.0)


def drawn_correct(cells: Cells, n_draws: int, seed: int) -> Floats:
    """Draw sums of outcomes of every cell, with labels drawn from the predictions; float64 (n_draws, n_cells), in [0, weight].

    Each cell has as many independent trials as its stored variance implies, and that variance. Cells come from `independent`: a cell of
    less than one trial has too little variance.
    """
    rate = np.clip(cells.mean, 0.0, 1.0)
    trials = np.maximum(_trials(cells.weight, rate, cells.null_variance), 1.0)
    whole_trials = np.floor(trials * (1.0 + 1e-9))
    chance = rate * (1.0 - rate)
    normal = whole_trials * chance >= _NORMAL_FROM
    scale, (n, p) = np.sqrt(chance / whole_trials)[normal], (whole_trials[~normal], rate[~normal])
    draws = np.random.default_rng(seed)
    share = np.empty((n_draws, len(cells)))
    pieces = _pieces(share)
    for some in pieces:
        some[:, normal] = draws.standard_normal((len(some), len(scale))) * scale
    for some in pieces:
        some[:, ~normal] = draws.binomial(n.astype(np.int64), p, (len(some), len(n))) / n - p
    # The fraction beyond an integer number of trials makes the deviations smaller, never larger than the cell allows.
    share *= np.sqrt(np.minimum(whole_trials / trials, 1.0))
    share += rate
    np.clip(share, 0.0, 1.0, out=share)
    share *= cells.weight
    return share


def independent(cells: Cells) -> Cells:
    """Merge neighbouring cells until each holds at least one independent trial.

    Units that are spread over cells leave less than a trial in each. Hits of a single cell could not then vary as much as all of them
    together do.
    """
    if (
        not len(cells)
        or (_trials(cells.weight, cells.mean, cells.null_variance) >= 1.0 - 1e-9).all()
    ):
        return cells
    if len(cells) > _MAX_UNGROUPED:
        cells = cells.at_places(equal_mass_groups(cells.weight, _MAX_UNGROUPED))
    group, number = np.zeros(len(cells), np.int64), 0
    weight = confidence = variance = 0.0
    for i, (w, c, v) in enumerate(
        zip(
            cells.weight.tolist(),
            cells.confidence.tolist(),
            cells.null_variance.tolist(),
            strict=True,
        )
    ):
        group[i] = number
        weight, confidence, variance = weight + w, confidence + c, variance + v
        if confidence * (weight - confidence) >= variance * (1.0 - 1e-9):
            number += 1
            weight = confidence = variance = 0.0
    # The rest at the end is merged with the last full group.
    return cells.at_places(np.minimum(group, max(number - 1, 0)))


def few(cells: Cells) -> Cells:
    """Return the cells, or their groups of equal mass where they are many."""
    if len(cells) <= _MAX_CELLS:
        return cells
    return cells.at_places(equal_mass_groups(cells.weight, _MAX_CELLS))


def _trials(weight: Floats, rate: Floats, variance: Floats) -> Floats:
    """Return the number of independent trials of these sums of outcomes; without variance the weight, at least one."""
    chance = weight**2 * rate * (1.0 - rate)
    return np.divide(chance, variance, out=np.maximum(weight, 1.0), where=variance > 0)


def quantiles_of(draws: Floats, ci: float = 0.95) -> NullReference:
    """Return the null reference of drawn values.

    The standard error of the quantile is half the distance of the order statistics one standard error of the rank below and above.

    Examples
    --------
    >>> quantiles_of(np.arange(2001) / 2000.0).q95
    0.95
    """
    values = np.sort(np.asarray(draws, np.float64))
    n = len(values)
    reach = np.sqrt(0.95 * 0.05 / n)
    low, q95, high, limit = (
        sorted_quantile(values, share)
        for share in (max(0.95 - reach, 0.0), 0.95, min(0.95 + reach, 1.0), 0.5 + ci / 2.0)
    )
    return NullReference(float(values.mean()), q95, (high - low) / 2.0, limit)


def sorted_quantile(values: Floats, share: float) -> float:
    """Return a quantile of sorted values to the bits of `np.quantile`, which takes ten times as long for a few of them."""
    place = (len(values) - 1) * float(share)
    below = int(place)
    part = place - below
    low, high = float(values[below]), float(values[min(below + 1, len(values) - 1)])
    if np.isnan(values[-1]):
        return float("nan")
    # numpy starts from the nearer end.
    return high - (high - low) * (1.0 - part) if part >= 0.5 else low + (high - low) * part
