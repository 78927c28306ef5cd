"""Average calibration error: the unweighted mean of the gaps of bins that are not empty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.inference.closed_null import ClosedNull, sum_null_of_gaps
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.intervals import GapStatistic
from calibrant.metrics.base import GapMetric

Floats = NDArray[np.float64]


def mean_gap(weight: Floats, gap: Floats) -> Floats:
    """Return the mean absolute gap over bins with weight, each bin alike; float64 (..., n_bins) to (...)."""
    filled = weight > 0
    return np.asarray((np.abs(gap) * filled).sum(axis=-1) / np.maximum(filled.sum(axis=-1), 1))


def ace_statistic(bias: float) -> GapStatistic:
    """Return the statistic over one table."""
    return GapSum(equal_share)


def equal_share(weight: Floats) -> Floats:
    """Return one over the number of bins with weight for each of them, 0 for the others; float64 as `weight`."""
    return np.asarray((weight > 0) / np.maximum((weight > 0).sum(axis=-1, keepdims=True), 1))


def ace_null(bias: float) -> ClosedNull:
    """Return the null reference of `ace_statistic`."""
    return sum_null_of_gaps(equal_share)


METRIC = GapMetric(
    slug="ace",
    title="Average calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="(1/|B|) Σ_{m in B} |acc(m) - conf(m)|, B the non-empty bins",
    search_words={"average calibration error": "", "L1-ACE": ""},
    source="Barfoot et al., eq. 3, over non-empty bins as in their code",
    options=("bins", "binning", "edges", "min_count", "scope"),
    statistic=ace_statistic,
    closed_null=ace_null,
    by_bin=True,
)
