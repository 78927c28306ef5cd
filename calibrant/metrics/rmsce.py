"""Root mean square calibration error: the root of the weighted mean of squared gaps."""

from __future__ import annotations

import numpy as np

from calibrant.inference.closed_null import ClosedNull, root_null_of_squares
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.intervals import GapStatistic
from calibrant.metrics.base import GapMetric, share


def rmsce_statistic(bias: float) -> GapStatistic:
    """Return the root of the mean squared gap, by weight."""
    return GapSum(share, 2, np.sqrt)


def rmsce_null(bias: float) -> ClosedNull:
    """Return the null reference of the root of the mean squared gap minus a bias."""
    return root_null_of_squares(share, bias)


METRIC = GapMetric(
    slug="rmsce",
    title="Root mean square calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="sqrt(Σ_m (W_m/W) (acc(m) - conf(m))^2)",
    search_words={"RMSCE": "", "RMS calibration error": "", "L2 calibration error": ""},
    source="Hendrycks, Mazeika, Dietterich (ICLR 2019)",
    options=("bins", "binning", "edges", "min_count", "scope"),
    statistic=rmsce_statistic,
    closed_null=rmsce_null,
)
