"""Report of all the paper's measures of a confidence histogram."""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.temperature.histogram_fit import fit_histogram_temperature
from calibrant.calibrators.temperature.losses import EceOptions, HistogramLosses
from calibrant.calibrators.temperature.surface import loss_curve
from calibrant.core.documents import Result
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.histogram_measures import (
    brier,
    calibration_errors,
    nll,
    roc,
    uncertainty_errors,
)
from calibrant.segmentation.histogram_tables import BINS, LEAST

CURVE = np.arange(5, 101) / 10.0


def histogram_report(
    histogram: ConfidenceHistogram,
    *,
    bins: int = BINS,
    binning: str = "equal_width",
    least: float = LEAST,
    denominator: str = "kept",
    objective: str = "nll",
) -> Result:
    """Return losses, errors, uncertainty, ROC, and for two classes the temperature with the losses along it.

    Parameters
    ----------
    histogram : ConfidenceHistogram
    bins, binning, least, denominator : as in `calibration_errors`
    objective : of the temperature

    Returns
    -------
    dict with `n_classes`, `n_bins`, `n_samples`, `mass`, `nll`, `brier`, `errors`, `uncertainty` (None where entropies
    are unknown), `roc` (by class, the area without the curve), `temperature` and `curve` (None except for two classes)

    Raises
    ------
    CalibrationInputError
        An option outside its range.
    """
    two = histogram.n_classes == 2
    options = EceOptions(min(bins, histogram.n_bins), least, denominator)
    by_class = (roc(histogram, label) for label in range(histogram.n_classes))
    about = ("auc", "error_bound", "reason")
    return {
        "n_classes": histogram.n_classes,
        "n_bins": histogram.n_bins,
        "n_samples": histogram.n_samples,
        "mass": histogram.mass,
        "nll": nll(histogram),
        "brier": brier(histogram),
        "errors": calibration_errors(
            histogram, bins, binning=binning, least=least, denominator=denominator
        ),
        "uncertainty": uncertainty_errors(histogram, bins, least=least, denominator=denominator)
        if histogram.knows("uncertainty")
        else None,
        "roc": [{name: one[name] for name in about if name in one} for one in by_class],
        "temperature": fit_histogram_temperature(histogram, objective, options) if two else None,
        "curve": loss_curve(HistogramLosses(histogram, options), CURVE) if two else None,
    }
