"""Smooth ECE: the smoothed calibration error at the bandwidth that equals the error, without bins and without a free parameter."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats, share
from calibrant.core.cells import Cells
from calibrant.core.grid import grid_of
from calibrant.core.view import View
from calibrant.estimators.smoothing import (
    fixed_point,
    grid_coefficients,
    min_bandwidth,
    reflected_kernel,
    smooth_calibration_error,
    smooth_calibration_errors,
)
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import (
    DRAWN,
    NullReference,
    drawn_correct,
    independent,
    quantiles_of,
)
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    MetricValue,
    OfBins,
    bin_scores,
    each_division,
    scored_cells,
)

MAX_CELLS = 8000
# Narrower bandwidths occur with more predictions, where draws differ less from each other.
_NULL_LEVELS = ((512, 100), (2048, 25), (8192, 10))
_POINTS = 120


def error_bound(cells: Cells, bandwidth: float) -> float:
    """Bound the change when scores are anywhere in their cells: a Gaussian shifted by x changes by 0.8 x / bandwidth."""
    reach = np.maximum(cells.upper - cells.mean, cells.mean - cells.lower)
    size = np.add(*cells.largest_shift)
    return float((size * reach).sum() / cells.weight.sum() * np.sqrt(2.0 / np.pi) / bandwidth)


def of_cells(view: View, cells: Cells) -> float:
    """Return the value from cells."""
    return _smoothed(cells)[0]


def _smoothed(cells: Cells) -> tuple[float, float]:
    """Return the error of cells and its bandwidth."""
    difference = (cells.correct - cells.confidence) / cells.weight.sum()
    return smooth_calibration_error(np.clip(cells.mean, 0.0, 1.0), difference)


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    bound = None
    if len(cells) > MAX_CELLS:
        cells = cells.at_places(grid_of(3600).locate(np.clip(cells.mean, 0.0, 1.0)))
        bound = 0.0
    value, bandwidth = _smoothed(cells)
    extra: dict[str, object] = {"bandwidth": bandwidth, "kernel": "reflected Gaussian"}
    extra["null_assumption"] = DRAWN
    if bound is not None or not view.is_raw or value < bandwidth:
        extra["error_bound"] = error_bound(cells, bandwidth) + max(bandwidth - value, 0.0)
    return MetricValue(value, extra)


def of_bins(view: View, reading: MetricValue) -> OfBins:
    """Return the bins' gaps smoothed at the bandwidth of the value."""
    bandwidth = float(str(reading.extra["bandwidth"]))

    def statistic(bins: int) -> GapStatistic:
        kernel = reflected_kernel(bin_scores(view, bins), max(bandwidth, 0.5 / bins), _POINTS)

        def of_gaps(weight: Floats, gap: Floats) -> Floats:
            return np.asarray(np.abs((share(weight) * gap) @ kernel).mean(axis=-1)[..., 0])

        return of_gaps

    return OfBins(statistic)


def of_resamples(view: View, times: Floats) -> Floats:
    """Return values of resamples, to a relative 1e-5."""
    rows = view.rows(view.scope)
    taken = np.tile(times, len(rows) // times.shape[1])
    total = taken @ rows.weight
    difference = taken * (rows.correct - rows.confidence) / np.where(total > 0, total, 1.0)[:, None]
    errors = smooth_calibration_errors(np.clip(rows.lower, 0.0, 1.0), difference, tolerance=1e-5)[0]
    return np.where(total > 0, errors, np.nan)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the null reference. Each draw finds its own bandwidth, from more coefficients if it is below what few resolve."""
    cells = scored_cells(view)
    for n, n_draws in _NULL_LEVELS:
        errors = _drawn_errors(cells, n, n_draws, seed)
        if np.median(errors) > min_bandwidth(n):
            break
    return quantiles_of(errors)


def _drawn_errors(cells: Cells, n: int, n_draws: int, seed: int) -> Floats:
    """Return errors of a calibrated model with scores at the middles of n intervals."""
    cells = independent(
        cells.at_places(np.floor(np.clip(cells.mean, 0.0, 1.0) * n).astype(np.int64))
    )
    difference = np.zeros((n_draws, n))
    place = np.minimum(np.floor(np.clip(cells.mean, 0.0, 1.0) * n), n - 1).astype(np.int64)
    # Groups hold whole intervals, so that no two means share one.
    difference[:, place] = (
        drawn_correct(cells, n_draws, seed) - cells.confidence
    ) / cells.weight.sum()
    return fixed_point(grid_coefficients(difference), tolerance=1e-3)[0]


METRIC = FormulaMetric(
    slug="smooth_ece",
    title="Smooth expected calibration error",
    formula="∫ |(K_σ * (y - s))(t)| dt at the fixed point of σ, reflected Gaussian",
    search_words={"smECE": "", "SmoothECE": ""},
    source="Błasiok, Nakkiran (ICLR 2024), reflected Gaussian",
    options=("scope",),
    read=read,
    of_cells=each_division(of_cells),
    of_bins=of_bins,
    of_resamples=of_resamples,
    null=null,
)
