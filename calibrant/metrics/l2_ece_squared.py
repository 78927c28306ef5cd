"""Squared calibration error without bias: the mean squared gap minus what chance in the labels adds. It may be negative.

Its square root is `debiased_ece`, up to the variance that is subtracted: here that of outcomes minus scores, which is exact for bins with
several scores. Its interval is normal. It holds where the model is calibrated, and where it is not, because the variance has both parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio, share
from calibrant.core.cells import Cells
from calibrant.core.query import TIES
from calibrant.core.view import NoResultError, View
from calibrant.inference.gap_uncertainty import MIN_EFFECTIVE, has_named_units
from calibrant.inference.null_reference import NullReference, gap_null
from calibrant.metrics.formula_metric import FormulaMetric, Interval, MetricValue

# Measured: with fewer outcomes of one kind, the interval is too low in a tenth to all of the runs. Where the scores expect fewer, only
# unusual windows have as many, and .63 of their intervals contain the true value at n = 50. With 60 outcomes windows are not unusual.
MIN_OUTCOMES, MANY_OUTCOMES = 20, 60
METHOD = "normal, with the variance of the debiased squared error (Sun et al. 2024)"


@dataclass(frozen=True)
class Bins:
    """Bins with more than one sample, float64 (n_bins,): part of all weight, effective number of samples, gap, variance of outcomes minus scores.

    `error` is how far the subtracted mean can be off because scores of a stored cell count as equal, and `typical` how far it is if they
    are uniform in the cell.
    """

    part: Floats
    n: Floats
    gap: Floats
    variance: Floats
    error: float = 0.0
    typical: float = 0.0


def squared_error(bins: Bins) -> float:
    """Return the unbiased estimate of the mean squared gap.

    Examples
    --------
    >>> float(squared_error(Bins(np.array([1.0]), np.array([4.0]), np.array([0.5]), np.array([0.2]))))
    0.2
    """
    return float(bins.part @ (bins.gap**2 - bins.variance / bins.n))


def error_variance(bins: Bins) -> float:
    """Return the variance of the estimate: of products of two deviations, of a deviation with its gap, and of the bins' parts."""
    true = np.maximum(bins.gap**2 - bins.variance / bins.n, 0.0)
    products = 2.0 * bins.variance**2 / (bins.n * (bins.n - 1.0))
    crossed = 4.0 * true * bins.variance / bins.n
    mean = float(bins.part @ true)
    total = float((bins.n / bins.part).max()) if len(bins.n) else 1.0
    parts = max(float(bins.part @ true**2) - mean**2, 0.0) / total
    return float((bins.part**2 * (products + crossed)).sum()) + parts


def bins_of(view: View) -> Bins:
    """Return the bins of a view; the scores of a stored cell count as equal to their mean."""
    pane_query = view.pane_query
    table = view.table().cells
    cells, place = view.cells_in_bins(view.scope, pane_query.binning, pane_query.bins, of_rows=True)
    used = place >= 0
    own = cells.select(used)
    squares = np.bincount(
        place[used],
        own.correct_squared - 2.0 * own.mean * own.correct + own.mean**2 * own.weight,
        len(table),
    )
    inside = np.maximum((own.upper - own.mean) * (own.mean - own.lower), 0.0) * own.weight
    off = np.bincount(
        place[used],
        np.where(own.predictions > 1, inside, 0.0) + 2.0 * own.largest_covariance,
        len(table),
    )
    width = np.where(own.predictions > 1, own.upper - own.lower, 0.0) ** 2 / 12.0
    expected = np.bincount(place[used], width * own.weight, len(table)) + 2.0 * np.sqrt(
        np.bincount(place[used], width * own.label_variance, len(table))
    )
    keep = table.weight**2 > table.weight_squared * (1.0 + 1e-9)
    total, table = float(table.weight.sum()), table.select(keep)
    n = table.weight**2 / table.weight_squared
    spread = np.maximum(squares[keep] / table.weight - table.gap**2, 0.0)
    error, typical = (
        float((sums[keep] / (n - 1.0)).sum()) / total if total else 0.0 for sums in (off, expected)
    )
    return Bins(table.weight / total, n, table.gap, spread * n / (n - 1.0), error, typical)


def reject_others(view: View) -> None:
    """Raise unless labels are single, independent and of equal weight."""
    counts = view.counts
    several = counts["n_ratings"] > counts["n_labelled"]
    if several or has_named_units(view) or view.weighted or view.histogram_share():
        raise NoResultError(
            "independent_labels_only", "one label of weight one per prediction, and no named units"
        )


def reject_few_outcomes(cells: Cells) -> None:
    """Raise if outcomes of one kind are few, or the scores expect few and chance alone may have made them more.

    Raises
    ------
    NoResultError
        Fewer than 20 outcomes of one kind; or fewer than 60, where the scores expect fewer than 20.
    """
    total = float(cells.weight.sum())
    observed, expected = (
        min(each, total - each)
        for each in (float(cells.correct.sum()), float(cells.confidence.sum()))
    )
    if observed < MIN_OUTCOMES or (observed < MANY_OUTCOMES and expected < MIN_OUTCOMES):
        detail = (
            f"Received {observed:.0f} outcomes of one kind; the scores expect {expected:.0f}. "
            f"An interval needs {MIN_OUTCOMES}, and {MANY_OUTCOMES} if fewer than {MIN_OUTCOMES} are expected."
        )
        raise NoResultError("few_errors", detail)


def read(view: View) -> MetricValue | None:
    view.reject_histograms()
    bins = bins_of(view)
    if not view.table().cells.weight.sum():
        return None
    if not len(bins.n):
        raise NoResultError("too_few_predictions", "no bin has two samples")
    extra: dict[str, object] = {**view.pane_query.about_bins}
    if not view.is_raw:
        extra |= {"error_bound": bins.error, "error_estimate": min(bins.typical, bins.error)}
    return MetricValue(squared_error(bins), extra)


def interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Return the normal interval.

    Raises
    ------
    NoResultError
        As `reject_others` and `reject_few_outcomes`, or too few predictions.
    """
    reject_others(view)
    if view.counts["n_labelled"] < MIN_EFFECTIVE:
        raise NoResultError("too_few_units", f"intervals need {MIN_EFFECTIVE:.0f} predictions")
    reject_few_outcomes(view.table().cells)
    z = float(scipy.special.ndtri(0.5 + view.pane_query.ci / 2.0))
    reach = z * float(np.sqrt(error_variance(bins_of(view))))
    about = {
        "interval_method": METHOD,
        "interval_of": "the population's mean squared gap over the same bins, which is not negative: cut off at 0",
    }
    return Interval((reading.value - reach, reading.value + reach), about)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the reference of a calibrated model, whose mean is 0."""
    cells = view.table().cells
    weight, variance = cells.weight[None], cells.null_variance[None]
    bias = float(ratio(variance, weight).sum() / weight.sum())
    return gap_null(
        lambda w, gap: (share(w) * gap**2).sum(axis=(-1, -2)) - bias, weight, variance, seed
    )


METRIC = FormulaMetric(
    slug="l2_ece_squared",
    title="Squared calibration error, debiased",
    unit="squared probability",
    range=(-1.0, 1.0),
    formula="Σ_m (n_m/n) (gap_m^2 - s_m^2/n_m), s_m^2 the sample variance of outcomes minus scores",
    search_words={
        "squared L2 calibration error": "",
        "ECE^2": "",
        "L2 ECE confidence interval": "",
    },
    source="Sun, Chaudhari, Barnett, Dobriban (2024); single independent labels only",
    options=("bins", "binning", "edges", "min_count", "scope"),
    own_options=(TIES,),
    lowest_truth=0.0,
    read=read,
    interval=interval,
    null=null,
)
