"""Calibration errors of bins: statistics of the gaps between accuracy and confidence.

With `raters=pooled`, `ece` is the multi-rater ECE of Riera-Marin et al. (eq. 5): bins are weighted by ratings, and a bin's accuracy is
the share of ratings equal to the top class. `adaptive_ece` has bins of equal mass, ties never split. From stored state its cuts are at limits
of cells: `error_bound` is the largest difference from the value over raw rows, `error_estimate` a typical one.

`debiased_ece` subtracts from each bin's squared gap the variance of its accuracy, estimated from the bin itself. The printed
y (1 - y) / (n - 1) has no value for a bin with one prediction: its squared gap stays, so that many such bins raise the value.

`lp_ece` has any order: 1 is `ece`, 2 is `rmsce`. Larger orders emphasise the largest gaps and tend to `mce`.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats, ratio, share
from calibrant.core.cells import Cells, Table, cuts_inside
from calibrant.core.documents import Extra
from calibrant.core.query import TIES, Option, PaneQuery
from calibrant.core.view import View
from calibrant.estimators.cut_error import cut_error, power_mean_gap
from calibrant.inference.closed_null import ClosedNull, null_of_sum
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.largest_gap import largest_gap_null
from calibrant.metrics.metric import GapMetric

ORDER = Option(
    "order",
    2.0,
    "Order p of the calibration error: power of the gaps, and root of their mean.",
    low=1.0,
    high=100.0,
)
WEIGHTED, SQUARED = GapSum(share), GapSum(share, 2, np.sqrt)


def weighted_mean_gap(weight: Floats, gap: Floats) -> Floats:
    """Return the mean absolute gap over bins, by weight; float64 (..., n_bins) to (...).

    Examples
    --------
    >>> float(weighted_mean_gap(np.array([4.0, 0.0]), np.array([-0.125, 0.0])))
    0.125
    """
    mean_gap: Floats = np.einsum("...b,...b->...", share(weight), np.abs(gap))
    return mean_gap


def mean_share(weight: Floats) -> Floats:
    """Return the factor of each absolute gap in the mean over classes; float64 as `weight`, (..., n_classes, n_bins)."""
    return np.asarray(share(weight) / weight.shape[-2])


def mean_gap(weight: Floats, gap: Floats) -> Floats:
    """Return the mean absolute gap over bins with weight, each bin alike; float64 (..., n_bins) to (...)."""
    filled = weight > 0
    return np.asarray((np.abs(gap) * filled).sum(axis=-1) / np.maximum(filled.sum(axis=-1), 1))


def equal_share(weight: Floats) -> Floats:
    """Return one over the number of bins with weight for each of them, 0 for the others; float64 as `weight`."""
    return np.asarray((weight > 0) / np.maximum((weight > 0).sum(axis=-1, keepdims=True), 1))


def largest_gap(weight: Floats, gap: Floats) -> Floats:
    """Return the largest absolute gap among bins with weight."""
    return np.asarray(np.where(weight > 0, np.abs(gap), 0.0).max(axis=(-1, -2)))


def order_statistic(order: float) -> GapStatistic:
    """Return the p-th root of the mean of |gap|^p by weight; (..., n_tables, n_bins) to (...).

    Examples
    --------
    >>> float(order_statistic(3.0)(np.array([[1.0, 1.0]]), np.array([[0.5, -0.5]])))
    0.5
    """
    return lambda weight, gap: (
        (share(weight) * np.abs(gap) ** order).sum(axis=(-1, -2)) ** (1.0 / order)
    )


def requested_order(pane_query: PaneQuery) -> tuple[GapStatistic, ClosedNull | None]:
    """Return the statistic of the requested order; orders that are metrics of their own have the same null reference."""
    order = float(ORDER.of(pane_query))
    closed = {1.0: null_of_sum(WEIGHTED), 2.0: null_of_sum(SQUARED)}
    return order_statistic(order), closed.get(order)


def accuracy_variance(table: Table) -> float:
    """Return the weighted mean over bins of the estimated variance of the bin's accuracy.

    For shares of ratings the sample variance of the shares is used; for weighted samples n is the effective number.
    """
    cells = table.cells
    samples = ratio(cells.weight**2, cells.weight_squared)
    enough = (cells.count >= 2) & (samples > 1.0 + 1e-9)
    weight = np.where(enough, cells.weight, 1.0)
    rate = cells.correct / weight
    spread = np.maximum(cells.correct_squared / weight - rate**2, 0.0)
    variance = np.where(enough, spread / np.where(enough, samples - 1.0, 1.0), 0.0)
    return float(share(cells.weight) @ variance)


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


def error_of_cuts(view: View, value: float) -> Extra:
    """Return bound and typical size of the error of cuts at limits of cells."""
    if view.is_raw:
        return {}
    cells, bins = view.cells(), view.pane_query.bins
    typical = None
    if not view.pane_query.min_count:
        typical = cut_error(cells, bins, value, power_mean_gap(1.0))
    return {"error_bound": cut_bound(cells, bins), "error_estimate": typical}


METRICS = (
    GapMetric(
        slug="ece",
        title="Expected calibration error",
        formula="Σ_m (W_m/W) |acc(m) - conf(m)|",
        search_words={
            "MR-ECE": "raters=pooled",
            "expected calibration error": "",
            "confidence ECE": "",
            "L1 calibration error": "",
            "multi-rater ECE": "raters=pooled",
        },
        source="Naeini et al. 2015; Pavlovic, blog post; Riera-Marin et al., eq. 5 for several raters",
        gaps=WEIGHTED,
    ),
    GapMetric(
        slug="all_label_ece",
        title="All-label expected calibration error",
        needs=("classes", "all_labels"),
        formula="Σ_m (W_m/W) |freq(m) - conf(m)|, the probabilities of all labels in one table",
        search_words={"full ECE": "", "multi-class ECE": "", "full multi-class ECE": ""},
        source="Kock, Thielke et al.: full multi-class ECE",
        options=("bins", "binning", "edges", "min_count"),
        gaps=WEIGHTED,
        scope="all",
    ),
    GapMetric(
        slug="classwise_ece",
        title="Class-wise expected calibration error",
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
        of_class=weighted_mean_gap,
        gaps=GapSum(mean_share),
    ),
    GapMetric(
        slug="mce",
        title="Maximum calibration error",
        formula="max_m |acc(m) - conf(m)| over non-empty bins",
        search_words={"maximum calibration error": "", "L-infinity calibration error": ""},
        source="Naeini et al. 2015; empty bins are skipped",
        gaps=largest_gap,
        closed=largest_gap_null,
        by_bin=True,
    ),
    GapMetric(
        slug="ace",
        title="Average calibration error",
        formula="(1/|B|) Σ_{m in B} |acc(m) - conf(m)|, B the non-empty bins",
        search_words={"average calibration error": "", "L1-ACE": ""},
        source="Barfoot et al., eq. 3, over non-empty bins as in their code",
        gaps=GapSum(equal_share),
        by_bin=True,
    ),
    GapMetric(
        slug="rmsce",
        title="Root mean square calibration error",
        formula="sqrt(Σ_m (W_m/W) (acc(m) - conf(m))^2)",
        search_words={"RMSCE": "", "RMS calibration error": "", "L2 calibration error": ""},
        source="Hendrycks, Mazeika, Dietterich (ICLR 2019)",
        gaps=SQUARED,
    ),
    GapMetric(
        slug="debiased_ece",
        title="Debiased root mean square calibration error",
        formula="sqrt(max(0, Σ_m (W_m/W) (gap_m^2 - var_m)))",
        search_words={
            "debiased calibration error": "",
            "L2 debiased ECE": "",
            "verified calibration error": "",
        },
        source="Kumar, Liang, Ma (NeurIPS 2019)",
        gaps=SQUARED,
        bias=accuracy_variance,
    ),
    GapMetric(
        slug="lp_ece",
        title="Calibration error of order p",
        formula="(Σ_m (W_m/W) |acc(m) - conf(m)|^p)^(1/p), p = order",
        search_words={"CE_p": "", "Lp calibration error": "", "ECE_p": ""},
        source="Mimori et al. (AISTATS 2021), definition 2",
        own_options=(TIES, ORDER),
        gaps_of=requested_order,
        about=lambda view, value: {"order": float(ORDER.of(view.pane_query))},
    ),
    GapMetric(
        slug="adaptive_ece",
        title="Adaptive expected calibration error",
        formula="Σ_m (W_m/W) |acc(m) - conf(m)|, bins of equal mass",
        exact=False,
        search_words={"AdaECE": "", "adaptive calibration error": "", "equal-mass ECE": ""},
        source="Nguyen, O'Connor (EMNLP 2015); equal mass in the policy's weight",
        options=("bins", "min_count", "scope"),
        gaps=WEIGHTED,
        binning="equal_mass",
        about=error_of_cuts,
    ),
)
