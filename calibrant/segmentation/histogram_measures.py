"""Measures of confidence histograms: NLL, Brier, calibration errors, uncertainty calibration, ROC.

Source
------
Kock, Thielke et al., eqs. 1 and 2; uncertainty: Laves et al. (2019).
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError, check_one_of
from calibrant.estimators.roc_curve import area, rates, unordered_share
from calibrant.metrics.uce import inverse_binary_entropy
from calibrant.segmentation.class_histograms import EXACT, ConfidenceHistogram, coarse_bins
from calibrant.segmentation.histogram_tables import (
    BINS,
    DENOMINATORS,
    LEAST,
    CoarseTable,
    coarse_table,
    fine_table,
)


def nll(histogram: ConfidenceHistogram) -> Result:
    """Return the negative log-likelihood in nats from the centres (eq. 1), and from the exact running sum.

    Returns
    -------
    dict with `sum`, `mean` (None without mass), `largest` (maximum per sample, from the lowest centre),
    `exact_sum`, `exact_mean` (of ratings whose probability is not 0), `zero_probability_weight`.
    """
    right = histogram.label[:, 1]
    total, mass = float(-(right * np.log(histogram.centres)).sum()), float(right.sum())
    exact = dict(zip(EXACT, histogram.exact.tolist(), strict=True))
    known = histogram.knows_exact and exact["nll_weight"] > 0
    return {
        "sum": total,
        "mean": total / mass if mass else None,
        "largest": float(np.log(2.0 * histogram.n_bins)),
        "exact_sum": exact["nll"] if known else None,
        "exact_mean": exact["nll"] / exact["nll_weight"] if known else None,
        "zero_probability_weight": exact["zero_probability_weight"],
    }


def brier(histogram: ConfidenceHistogram) -> Result:
    """Return the Brier score, summed over classes, from the centres and from the exact running sum.

    Returns
    -------
    dict with `mean` and `exact_mean`, None without mass. A centre is off by at most 1 / (2 n), so `mean` is off by at
    most K / n.
    """
    centres, mass = histogram.centres, histogram.mass
    wrong, right = histogram.label.sum(axis=0)
    total = float((wrong * centres**2 + right * (1.0 - centres) ** 2).sum())
    exact = float(histogram.exact[EXACT.index("brier")])
    return {
        "mean": total / mass if mass else None,
        "exact_mean": exact / mass if mass and histogram.knows_exact else None,
    }


def calibration_errors(
    histogram: ConfidenceHistogram,
    bins: int = BINS,
    *,
    binning: str = "equal_width",
    least: float = LEAST,
    denominator: str = "kept",
) -> Result:
    """Return errors of the prediction, of each class, and of all labels in one table.

    Parameters
    ----------
    bins, binning, least : as in `coarse_table`
    denominator : as in `CoarseTable.errors`

    Returns
    -------
    dict of `prediction` (top label, eq. 2; None if predictions were not filled), `by_class` (a list),
    `classwise` (mean of `ece`, `mce` and `ace` over classes with bins), `full` (all labels; mass K N),
    each as `CoarseTable.errors`; and the unit of the minimum count.

    Raises
    ------
    CalibrationInputError
        An option outside its range.
    """
    check_one_of("denominator", denominator, DENOMINATORS)

    def errors(kind: str, label: int | None = None) -> Result:
        return coarse_table(
            histogram, kind, bins, label=label, binning=binning, least=least
        ).errors(denominator)

    by_class = [errors("label", k) for k in range(histogram.n_classes)]
    classwise: Result = {}
    for name in ("ece", "mce", "ace"):
        found = [one[name] for one in by_class if one[name] is not None]
        classwise[name] = float(np.mean(found)) if found else None
    return {
        "bins": bins,
        "binning": binning,
        "least": least,
        "least_of": "mass" if histogram.is_weighted else "samples",
        "prediction": errors("prediction") if histogram.knows("prediction") else None,
        "by_class": by_class,
        "classwise": classwise,
        "full": errors("all"),
    }


def uncertainty_errors(
    histogram: ConfidenceHistogram,
    bins: int = BINS,
    *,
    least: float = LEAST,
    denominator: str = "kept",
) -> Result:
    """Return the expected uncertainty calibration error: normalised entropy against the share of incorrect predictions.

    Returns
    -------
    dict with `uce` and `max_uce` against the diagonal; `to_ideal`, the same against the ideal curve (two classes
    only, else None); `table` with mean uncertainty, error rate and the ideal rate of each bin; and the masses of
    `CoarseTable.errors`.

    Source
    ------
    Laves et al. (2019); Kock, Thielke et al., appendix D.
    """
    table = coarse_table(histogram, "uncertainty", bins, least=least)
    wrong = CoarseTable(
        table.mass,
        table.confidence,
        table.mass - table.correct_ratings,
        table.lower,
        table.upper,
        table.kept,
    )
    plain = wrong.errors(denominator)
    ideal = None
    if histogram.n_classes == 2:
        # The curve is not linear inside a bin, so a bin's ideal rate is the mean of the curve over its fine bins.
        fine = histogram.uncertainty.sum(axis=0)
        curve = inverse_binary_entropy(histogram.centres)
        place = coarse_bins(histogram.n_bins, bins)
        ideal = ratio(np.bincount(place, fine * curve, bins), table.mass, np.nan)
    to_ideal = None if ideal is None else wrong.errors(denominator, ideal)
    rows = [
        {
            "mean_uncertainty": _number(u),
            "error_rate": _number(e),
            "ideal": _number(i),
            "mass": float(m),
            "kept": bool(k),
        }
        for u, e, i, m, k in zip(
            wrong.mean,
            wrong.rate,
            np.full(bins, np.nan) if ideal is None else ideal,
            table.mass,
            table.kept,
            strict=True,
        )
    ]
    return {
        "uce": plain["ece"],
        "max_uce": plain["mce"],
        "to_ideal": None
        if to_ideal is None
        else {"uce": to_ideal["ece"], "max_uce": to_ideal["mce"]},
        "table": rows,
        **{name: plain[name] for name in ("mass", "discarded_mass", "n_bins_kept", "denominator")},
    }


def roc(histogram: ConfidenceHistogram, label: int = 1) -> Result:
    """Return the receiver operating characteristic of a class's probability, thresholds at the edges of non-empty fine bins.

    Returns
    -------
    dict with `threshold`, `true_positive_rate`, `false_positive_rate` (from the highest threshold down), `auc` with
    ties counted half, and `error_bound`: half of the share of pairs in the same fine bin. None and a reason
    if the class is always or never the reference.
    """
    wrong, right = fine_table(histogram, "label", label)
    positives, negatives = float(right.sum()), float(wrong.sum())
    if not positives or not negatives:
        nothing: Result = {
            "threshold": [],
            "true_positive_rate": [],
            "false_positive_rate": [],
        }
        return nothing | {"auc": None, "error_bound": None, "reason": "one_class"}
    filled = np.flatnonzero((wrong > 0) | (right > 0))
    correct_ratings, alarms = rates(right[filled], wrong[filled])
    return {
        "threshold": np.concatenate([[1.0], filled[::-1] / histogram.n_bins]).tolist(),
        "true_positive_rate": correct_ratings.tolist(),
        "false_positive_rate": alarms.tolist(),
        "auc": float(area(right, wrong)),
        "error_bound": unordered_share(right, wrong),
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


WIDEST = 100


def smoothed(mass: Floats, width: int) -> Floats:
    """Distribute the mass of each bin over `width` bins to each side.

    Parameters
    ----------
    mass : float64 (..., n_bins)
    width : the triangle reaches 0 at width + 1 bins; 0 leaves the mass unchanged

    Returns
    -------
    float64 (..., n_bins), with the same sum along the bins.

    Raises
    ------
    CalibrationInputError
        A width below 0 or above 100, or more than there are bins.

    Examples
    --------
    >>> smoothed(np.array([4.0, 0.0, 0.0]), 1).tolist()
    [3.0, 1.0, 0.0]
    """
    if not 0 <= width <= min(WIDEST, mass.shape[-1]):
        detail = f"Received smoothing={width}; expected 0 to {min(WIDEST, mass.shape[-1])} bins."
        raise CalibrationInputError.at("/smoothing", "range", detail)
    reach = np.arange(-width, width + 1)
    kernel = (width + 1.0 - np.abs(reach)) / (width + 1.0) ** 2
    padding = [(0, 0)] * (mass.ndim - 1) + [(width, width)]
    mirrored = np.pad(mass, padding, mode="symmetric")
    n = mass.shape[-1]
    total = np.zeros_like(mass)
    for place, share in enumerate(kernel):
        total += share * mirrored[..., place : place + n]
    return total
