"""Expected calibration error: the mean gap, weighted by the bins' weight.

With `raters=pooled` this is the multi-rater ECE of Riera-Marin et al. (eq. 5): bins are weighted by ratings, and a bin's accuracy is
the share of ratings equal to the top class.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.inference.closed_null import ClosedNull, sum_null_of_gaps
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.intervals import GapStatistic
from calibrant.metrics.base import GapMetric, share

Floats = NDArray[np.float64]


def weighted_mean_gap(weight: Floats, gap: Floats) -> Floats:
    """Return the mean absolute gap over bins, by weight; float64 (..., n_bins) to (...).

    Source
    ------
    Naeini, Cooper, Hauskrecht (AAAI 2015).

    Examples
    --------
    >>> float(weighted_mean_gap(np.array([4.0, 0.0]), np.array([-0.125, 0.0])))
    0.125
    """
    mean_gap: Floats = np.einsum("...b,...b->...", share(weight), np.abs(gap))
    return mean_gap


def ece_statistic(bias: float) -> GapStatistic:
    """Return the statistic over one table."""
    return GapSum(share)


def ece_null(bias: float) -> ClosedNull:
    """Return the null reference of `ece_statistic`."""
    return sum_null_of_gaps(share)


METRIC = GapMetric(
    slug="ece",
    title="Expected calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="Σ_m (W_m/W) |acc(m) - conf(m)|",
    search_words={
        "MR-ECE": "raters=pooled",
        "expected calibration error": "",
        "confidence ECE": "",
        "L1 calibration error": "",
        "multi-rater ECE": "raters=pooled",
    },
    source="Naeini et al. 2015; Pavlovic, blog post; Riera-Marin et al., eq. 5 for several raters",
    options=("bins", "binning", "edges", "min_count", "scope"),
    statistic=ece_statistic,
    closed_null=ece_null,
)
