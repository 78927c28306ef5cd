"""Maximum calibration error: the largest gap of a bin that is not empty."""

from __future__ import annotations

import numpy as np

from calibrant.inference.closed_null import ClosedNull
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.largest_gap import largest_gap_null
from calibrant.metrics.base import GapMetric


def mce_statistic(bias: float) -> GapStatistic:
    """Return the largest absolute gap among bins with weight. It has no bias to subtract: `bias` is not read."""
    return lambda weight, gap: np.where(weight > 0, np.abs(gap), 0.0).max(axis=(-1, -2))


def mce_null(bias: float) -> ClosedNull:
    """Return the null reference of `mce_statistic`."""
    return largest_gap_null


METRIC = GapMetric(
    slug="mce",
    title="Maximum calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="max_m |acc(m) - conf(m)| over non-empty bins",
    search_words={"maximum calibration error": "", "L-infinity calibration error": ""},
    source="Naeini et al. 2015; empty bins are skipped",
    options=("bins", "binning", "edges", "min_count", "scope"),
    statistic=mce_statistic,
    closed_null=mce_null,
    by_bin=True,
)
