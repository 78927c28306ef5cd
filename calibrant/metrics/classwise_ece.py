"""Class-wise ECE: the mean over classes of the ECE of one class against the rest. `by_class` has each class's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.inference.closed_null import sum_null_of_gaps
from calibrant.inference.gap_sums import GapSum
from calibrant.metrics.base import ClasswiseGapMetric, share
from calibrant.metrics.ece import weighted_mean_gap

Floats = NDArray[np.float64]


def mean_share(weight: Floats) -> Floats:
    """Return the factor of each absolute gap in the mean over classes; float64 as `weight`, (..., n_classes, n_bins)."""
    return np.asarray(share(weight) / weight.shape[-2])


METRIC = ClasswiseGapMetric(
    slug="classwise_ece",
    title="Class-wise expected calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("classes",),
    formula="(1/K) Σ_k Σ_m (W_km/W) |freq_k(m) - conf_k(m)|",
    search_words={
        "cwECE": "",
        "SCE": "",
        "static calibration error": "",
        "marginal calibration error": "",
    },
    source="Kull et al. (NeurIPS 2019); mean over all classes",
    options=("bins", "binning", "edges", "min_count"),
    statistic=weighted_mean_gap,
    mean=GapSum(mean_share),
    closed_null=sum_null_of_gaps(mean_share),
)
