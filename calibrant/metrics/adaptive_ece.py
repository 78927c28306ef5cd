"""Adaptive ECE: the weighted mean gap over bins of equal mass, ties never split.

From stored state, cuts are at limits of cells. `error_bound` is the largest difference from the value over raw rows,
`error_estimate` a typical one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant.core.cells import Cells, cuts_inside
from calibrant.core.view import View
from calibrant.estimators.cut_error import cut_error, power_mean_gap
from calibrant.metrics.base import Estimate, GapMetric
from calibrant.metrics.ece import ece_null, ece_statistic


def cut_bound(cells: Cells, bins: int) -> float:
    """Bound the change of the mean gap if each cut may be anywhere inside the cell that contains it.

    Moving part of a cell to the neighbouring bin changes the sum of absolute differences by at most twice the part's own difference,
    which is between the cell's incorrect ratings at their highest score and its correct ones at their lowest. A cell with one cut moves one part.
    A cell with several cuts may be divided completely.
    """
    total = float(cells.weight.sum())
    if not total:
        return 0.0
    cuts = cuts_inside(cells, bins)
    above, below = cells.largest_shift
    change = np.where(cuts > 1, above + below, np.where(cuts > 0, np.maximum(above, below), 0.0))
    return float(2.0 * change.sum() / total)


@dataclass(frozen=True)
class AdaptiveMetric(GapMetric):
    """The gap metric with the bound of its cuts."""

    def estimate(self, view: View, seed: int) -> Estimate:
        estimate = super().estimate(view, seed)
        if view.is_raw or estimate.value is None:
            return estimate
        cells, bins = view.cells(), view.pane_query.bins
        error: dict[str, float | None] = {
            "error_bound": cut_bound(cells, bins),
            "error_estimate": None,
        }
        if not view.pane_query.min_count:
            error["error_estimate"] = cut_error(cells, bins, estimate.value, power_mean_gap(1.0))
        return replace(estimate, extra=dict(estimate.extra) | error)


METRIC = AdaptiveMetric(
    slug="adaptive_ece",
    title="Adaptive expected calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="Σ_m (W_m/W) |acc(m) - conf(m)|, bins of equal mass",
    exact=False,
    search_words={"AdaECE": "", "adaptive calibration error": "", "equal-mass ECE": ""},
    source="Nguyen, O'Connor (EMNLP 2015); equal mass in the policy's weight",
    options=("bins", "min_count", "scope"),
    statistic=ece_statistic,
    closed_null=ece_null,
    binning="equal_mass",
)
