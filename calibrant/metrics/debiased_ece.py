"""Debiased calibration error: the root mean square gap minus the part that label sampling variance adds to it.

The variance of each bin's accuracy, estimated from the bin itself, is subtracted from its squared gap. The printed y (1 - y) / (n - 1) has no
value for a bin with one prediction: its squared gap stays, so that many such bins raise the value. The total is at least 0 before the root.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.view import Table
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.intervals import GapStatistic
from calibrant.metrics.base import GapMetric, share
from calibrant.metrics.rmsce import rmsce_null


def accuracy_variance(table: Table) -> float:
    """Return the weighted mean over bins of the estimated variance of the bin's accuracy.

    Source
    ------
    Kumar, Liang, Ma, Verified Uncertainty Calibration (NeurIPS 2019): y (1 - y) / (n - 1) for single labels. For shares of ratings the
    sample variance of the shares is used; for weighted samples n is the effective number.
    """
    cells = table.cells
    samples = np.divide(
        cells.weight**2,
        cells.weight_squared,
        out=np.zeros(len(cells)),
        where=cells.weight_squared > 0,
    )
    enough = (cells.count >= 2) & (samples > 1.0 + 1e-9)
    weight = np.where(enough, cells.weight, 1.0)
    rate = cells.correct / weight
    spread = np.maximum(cells.correct_squared / weight - rate**2, 0.0)
    variance = np.where(enough, spread / np.where(enough, samples - 1.0, 1.0), 0.0)
    return float(share(cells.weight) @ variance)


def debiased_statistic(bias: float) -> GapStatistic:
    """Return the root of the mean squared gap minus the bias, at least 0."""
    return GapSum(share, 2, lambda total: np.sqrt(np.maximum(total - bias, 0.0)))


METRIC = GapMetric(
    slug="debiased_ece",
    title="Debiased root mean square calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="sqrt(max(0, Σ_m (W_m/W) (gap_m^2 - var_m)))",
    search_words={
        "debiased calibration error": "",
        "L2 debiased ECE": "",
        "verified calibration error": "",
    },
    source="Kumar, Liang, Ma (NeurIPS 2019)",
    options=("bins", "binning", "edges", "min_count", "scope"),
    statistic=debiased_statistic,
    closed_null=rmsce_null,
    bias=accuracy_variance,
)
