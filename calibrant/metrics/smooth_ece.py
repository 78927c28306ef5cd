"""Smooth ECE: the calibration error under the bandwidth that equals it, without bins and without a choice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.cells import Cells
from calibrant.grid import grid_of
from calibrant.intervals import GapStatistic
from calibrant.metrics.base import share
from calibrant.metrics.reading import (
    DRAWN,
    Interval,
    Reading,
    ReadMetric,
    bin_scores,
    drawn_hits,
    interval_of_bins,
    quantiles_of,
    scored_cells,
)
from calibrant.smoothing import (
    cosine_coefficients,
    fixed_point,
    reflected_kernel,
    smooth_calibration_error,
)
from calibrant.view import View

Floats = NDArray[np.float64]
MOST_CELLS = 8000
_NULL_CELLS, _NULL_COEFFICIENTS, _N_DRAWS = 480, 512, 100
_POINTS = 120


def error_bound(cells: Cells, bandwidth: float) -> float:
    """Largest change when scores lie anywhere in their cells: a Gaussian shifted by x changes by 0.8 x / bandwidth."""
    reach = np.maximum(cells.upper - cells.mean, cells.mean - cells.lower)
    size = np.add(*cells.largest_shift)
    return float((size * reach).sum() / cells.weight.sum() * np.sqrt(2.0 / np.pi) / bandwidth)


def read(view: View) -> Reading | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    bound = None
    if len(cells) > MOST_CELLS:
        cells = cells.at_places(grid_of(3600).locate(np.clip(cells.mean, 0.0, 1.0)))
        bound = 0.0
    difference = (cells.correct - cells.confidence) / cells.weight.sum()
    value, bandwidth = smooth_calibration_error(np.clip(cells.mean, 0.0, 1.0), difference)
    extra: dict[str, object] = {"bandwidth": bandwidth, "kernel": "reflected Gaussian", "scope": view.scope}
    extra["null_assumption"] = DRAWN
    if bound is not None or not view.is_raw or value < bandwidth:
        extra["error_bound"] = error_bound(cells, bandwidth) + max(bandwidth - value, 0.0)
    return Reading(value, extra)


def interval(view: View, reading: Reading, seed: int) -> Interval:
    """From the replicates' bins, at the bandwidth of the value."""
    bandwidth = float(str(reading.extra["bandwidth"]))

    def statistic(bins: int) -> GapStatistic:
        kernel = reflected_kernel(bin_scores(view, bins), max(bandwidth, 0.5 / bins), _POINTS)

        def of_gaps(weight: Floats, gap: Floats) -> Floats:
            return np.asarray(np.abs((share(weight) * gap) @ kernel).mean(axis=-1)[..., 0])

        return of_gaps

    return interval_of_bins(view, statistic, seed, reading.value)


def null(view: View, reading: Reading, seed: int) -> tuple[float, float]:
    """Each draw finds its own bandwidth."""
    cells = scored_cells(view)
    if len(cells) > _NULL_CELLS:
        cells = cells.at_places(np.floor(np.clip(cells.mean, 0.0, 1.0) * _NULL_CELLS).astype(np.int64))
    difference = (drawn_hits(cells, _N_DRAWS, seed) - cells.confidence) / cells.weight.sum()
    score = np.clip(cells.mean, 0.0, 1.0)
    coefficients = cosine_coefficients(score, difference, _NULL_COEFFICIENTS)
    return quantiles_of(fixed_point(coefficients, tolerance=1e-5)[0])


METRIC = ReadMetric(
    slug="smooth_ece",
    title="Smooth expected calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    source="Błasiok, Nakkiran (ICLR 2024), reflected Gaussian",
    options=("scope",),
    read=read,
    interval=interval,
    null=null,
)
