"""What a perfectly calibrated model would show at this n: the estimate's distribution were labels drawn from the predictions.

In a bin, hits minus confidence then has mean 0 and the kept variance, in which all contributions of a unit move together:
the cautious end. Sums are taken as normal. The draws are seeded, so that an answer repeats.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.intervals import GapStatistic

ASSUMPTION = "labels drawn from the predictions; a unit's ratings and predictions fully dependent; normal sums"
N_DRAWS = 400
_Z95 = 1.6448536269514722
Floats = NDArray[np.float64]


def gap_null(statistic: GapStatistic, weight: Floats, variance: Floats, seed: int) -> tuple[float, float]:
    """Mean and 95 % quantile of a statistic of gaps under the null.

    Parameters
    ----------
    statistic : as in `intervals.gap_interval`
    weight, variance : float64 (n_tables, n_bins), weight and variance of hits minus confidence
    seed : of the draws
    """
    draws = _draws(weight.shape, seed)
    spread = np.divide(np.sqrt(variance), weight, out=np.zeros_like(weight), where=weight > 0)
    # A gap lies in [-1, 1] whatever its variance; the cautious variance of large units can exceed that.
    values = statistic(weight[None], np.clip(draws * spread, -1.0, 1.0))
    return float(values.mean()), float(np.quantile(values, 0.95))


@lru_cache(maxsize=8)
def _draws(shape: tuple[int, ...], seed: int) -> Floats:
    """Standard normal draws, shared by the metrics of one answer."""
    draws = np.random.default_rng(seed).standard_normal((N_DRAWS, *shape))
    draws.setflags(write=False)
    return draws


def sum_null(expected: float, variance: float, weight: float) -> tuple[float, float]:
    """Mean and upper 95 % quantile of a mean whose sum has this expectation and variance under the null."""
    return expected / weight, (expected + _Z95 * float(np.sqrt(variance))) / weight
