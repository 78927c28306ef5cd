"""Zhang's kernel calibration error: densities of all scores and of the scores of correct ratings, and their ratio as accuracy.

Both are triweight kernel densities on a grid, mirrored at 0 and 1. The error is an integral over the score, not a mean over samples as in
`kde_ece`. A score's own label is in its own estimate, so the error of a calibrated model is small only where the bandwidth spans many
predictions. `null_mean` is that error.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.query import Option
from calibrant.core.view import View
from calibrant.inference.null_reference import (
    DRAWN,
    NullReference,
    drawn_correct,
    independent,
    quantiles_of,
)
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue, each_division, scored_cells

BANDWIDTH_FROM = Option(
    "bandwidth_from",
    "all",
    "Scores whose standard deviation sets the bandwidth: those of all predictions (as in the paper), or of correct "
    "predictions (as in the published code).",
    allowed=("all", "correct"),
)
KERNEL_SD = Option(
    "kernel_sd",
    0.0,
    "Standard deviation of the kernel of densities. 0: by `bandwidth_from`.",
    low=0.0,
    high=1.0,
)
INTERVALS = 7200
_NULL_CELLS, _N_DRAWS = 600, 60
# Densities that are transformed at once: a transform of all draws takes 30 MB.
_AT_ONCE = 8
# Integrals of |K'| and |K''| of a triweight kernel of reach 1: twice its top, and four times its steepest slope.
_FIRST, _SECOND = 2.0 * 35.0 / 32.0, 4.0 * 35.0 / 32.0 * 6.0 * 5**-0.5 * 0.8**2


def rule_of_thumb_bandwidth(cells: Cells, of: str = "all") -> float:
    """Return the standard deviation of the kernel: that of the scores, divided by the fifth root of twice the number of predictions.

    Parameters
    ----------
    of : "all" scores as in the paper, or those of "correct" predictions as in the published code
    """
    weight = cells.correct if of == "correct" else cells.weight
    total = float(weight.sum())
    if not total > 0:
        return 2.0 / INTERVALS
    mean = float(weight @ cells.mean) / total
    variance = float(weight @ (cells.mean - mean) ** 2) / total
    number = float(cells.predictions.sum())
    return float(max(variance**0.5 * (2.0 * number) ** -0.2, 2.0 / INTERVALS))


def mirrored_density(score: Floats, weight: Floats, bandwidth: float) -> Floats:
    """Return triweight kernel sums at the grid's INTERVALS + 1 points, mirrored at 0 and 1; (..., n) to (..., points).

    Parameters
    ----------
    score : float64 (n,), in [0, 1]
    weight : float64 (..., n)
    bandwidth : standard deviation of the kernel, a third of its reach
    """
    place = np.clip(score, 0.0, 1.0) * INTERVALS
    lower = np.minimum(np.floor(place), INTERVALS - 1).astype(np.int64)
    part = place - lower
    flat = weight.reshape(-1, len(score))
    mass = np.zeros((len(flat), INTERVALS + 1))
    for row, values in zip(mass, flat, strict=True):
        row += np.bincount(lower, values * (1.0 - part), INTERVALS + 1)
        row += np.bincount(lower + 1, values * part, INTERVALS + 1)
    reach = min(int(np.ceil(3.0 * bandwidth * INTERVALS)), INTERVALS)
    at = np.arange(reach + 1) / INTERVALS / (3.0 * bandwidth)
    kernel = 35.0 / 32.0 / (3.0 * bandwidth) * np.maximum(1.0 - at**2, 0.0) ** 3
    shape = np.zeros(2 * INTERVALS)
    shape[: reach + 1] = kernel
    shape[-reach:] += kernel[:0:-1]
    transform = np.fft.rfft(shape)
    for first in range(0, len(mass), _AT_ONCE):
        some = mass[first : first + _AT_ONCE]
        # Mirrored at both ends the grid is periodic, and a convolution is a product of transforms.
        mirrored = np.concatenate([some, some[:, -2:0:-1]], axis=1)
        mirrored[:, [0, INTERVALS]] *= 2.0
        product = np.fft.rfft(mirrored, axis=1) * transform
        density = np.fft.irfft(product, 2 * INTERVALS, axis=1)[:, : INTERVALS + 1]
        np.maximum(density, 0.0, out=some)
    return mass.reshape(*weight.shape[:-1], INTERVALS + 1)


def density_error(cells: Cells, correct_ratings: Floats, bandwidth: float) -> Floats:
    """Return the integral of |score - accuracy| times the density of scores; correct ratings (..., n_cells) to (...).

    Source
    ------
    Zhang, Kailkhura, Han, Mix-n-Match (ICML 2020), section 4, order 1.
    """
    every = mirrored_density(cells.mean, cells.weight, bandwidth)
    right = np.minimum(mirrored_density(cells.mean, correct_ratings, bandwidth), every)
    at = np.arange(INTERVALS + 1) / INTERVALS
    return np.asarray(
        np.trapezoid(np.abs(at * every - right), at, axis=-1) / np.trapezoid(every, at)
    )


def error_bound(cells: Cells, bandwidth: float, width_of: str = "all") -> float:
    """Bound the change when scores are anywhere in their cells.

    Means of cells are exact, so scores scatter around them: half of the integral of |K''| times their variance. Hits can also be on one
    side: the integral of |K'| times their covariance with the score. The kernel's width follows the scores' own standard deviation: twice
    the change of its logarithm. That of correct predictions changes by at most their root mean square distance from the means of cells.

    Parameters
    ----------
    width_of : scores whose standard deviation sets the width: "all", "correct" or "none"
    """
    total, reach = float(cells.weight.sum()), 3.0 * bandwidth
    several = cells.divisible
    spread = np.where(
        several, np.maximum((cells.upper - cells.mean) * (cells.mean - cells.lower), 0.0), 0.0
    )
    farthest = (
        np.where(several, np.maximum(cells.upper - cells.mean, cells.mean - cells.lower), 0.0) ** 2
    )
    scattered = float(cells.weight @ spread + cells.correct @ farthest) / total
    moved = (
        0.5 * scattered * _SECOND / reach**2
        + float(cells.largest_covariance.sum()) / total * _FIRST / reach
    )
    if width_of == "none":
        return float(min(moved, 1.0))
    weight = cells.correct if width_of == "correct" else cells.weight
    mean = float(weight @ cells.mean) / max(float(weight.sum()), 1e-300)
    variance = float(weight @ (cells.mean - mean) ** 2)
    if not variance:
        return 1.0
    if width_of == "correct":
        return float(min(moved + 2.0 * np.log1p((float(weight @ farthest) / variance) ** 0.5), 1.0))
    return float(min(moved + np.log1p(float(cells.weight @ spread) / variance), 1.0))


def _width(view: View, cells: Cells) -> float:
    given = float(KERNEL_SD.of(view.pane_query))
    return given or rule_of_thumb_bandwidth(cells, str(BANDWIDTH_FROM.of(view.pane_query)))


def of_cells(view: View, cells: Cells) -> float:
    """Return the value from cells, at their own bandwidth."""
    return float(density_error(cells, cells.correct, _width(view, cells)))


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    given, of = float(KERNEL_SD.of(view.pane_query)), str(BANDWIDTH_FROM.of(view.pane_query))
    bandwidth = _width(view, cells)
    value = float(density_error(cells, cells.correct, bandwidth))
    extra: dict[str, object] = {
        "bandwidth": bandwidth,
        "bandwidth_from": "kernel_sd" if given else of,
        "kernel": "triweight, mirrored",
        "null_assumption": DRAWN,
    }
    if not view.is_raw:
        extra["error_bound"] = error_bound(cells, bandwidth, "none" if given else of)
    return MetricValue(value, extra)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the null reference from labels drawn cell by cell, in fewer cells, with the same bandwidth."""
    cells = scored_cells(view)
    if len(cells) > _NULL_CELLS:
        cells = cells.at_places(
            np.floor(np.clip(cells.mean, 0.0, 1.0) * _NULL_CELLS).astype(np.int64)
        )
    cells = independent(cells)
    bandwidth = float(str(reading.extra["bandwidth"]))
    return quantiles_of(density_error(cells, drawn_correct(cells, _N_DRAWS, seed), bandwidth))


METRIC = FormulaMetric(
    slug="zhang_kde_ece",
    title="Calibration error from densities",
    formula="∫ |E^[y | s] - s| f^(s) ds, triweight densities",
    search_words={"Zhang ECE": "", "mix-n-match ECE": "", "KDE ECE of Zhang": ""},
    source="Zhang, Kailkhura, Han (ICML 2020)",
    options=("scope",),
    own_options=(BANDWIDTH_FROM, KERNEL_SD),
    read=read,
    of_cells=each_division(of_cells),
    null=null,
)
