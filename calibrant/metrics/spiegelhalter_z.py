"""Spiegelhalter's z: the Brier score compared with that of calibrated scores, with a two-sided p-value.

The variance is the stored one, in which a unit's ratings and predictions are fully dependent (the conservative limit). With one rating
per prediction and no named units it is the usual one.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError, View
from calibrant.inference.null_reference import NullReference
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    MetricValue,
    bounded,
    each_division,
    scored_cells,
)


def z_of(cells: Cells) -> tuple[float, float]:
    """Return the numerator of z, and its standard deviation.

    Source
    ------
    Spiegelhalter, Probabilistic prediction in patient management and clinical trials (Statistics in Medicine, 1986).
    """
    slope = 1.0 - 2.0 * cells.mean
    deviation = float(np.sqrt(np.maximum(cells.null_variance @ slope**2, 0.0)))
    return float((cells.correct - cells.confidence) @ slope), deviation


def error_bound(cells: Cells, z: float, deviation: float) -> float:
    """Bound the change of z when scores are anywhere inside their cells."""
    reach = np.maximum(cells.upper - cells.mean, cells.mean - cells.lower) * (cells.predictions > 1)
    top = 2.0 * float(cells.largest_covariance.sum() + (cells.weight * reach**2).sum())
    variance = 4.0 * float(cells.null_variance @ reach)
    least = max(deviation**2 - variance, 0.0) ** 0.5
    return (top + abs(z) * (deviation - least)) / least if least else float("inf")


def of_cells(view: View, cells: Cells) -> float:
    """Return z of cells; 0 where it has no variance."""
    top, deviation = z_of(cells)
    return top / deviation if deviation > 0.0 else 0.0


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    top, deviation = z_of(cells)
    if deviation <= 0.0:
        raise NoResultError(
            "no_variance", "every score is 0, 1/2 or 1: the statistic has no variance"
        )
    z = top / deviation
    extra: dict[str, object] = {
        "p_value": float(2.0 * scipy.special.ndtr(-abs(z))),
        "sides": 2,
    }
    if not view.is_raw:
        bound = error_bound(cells, z, deviation)
        extra |= bounded(bound, "variance_not_told_by_cells")
    return MetricValue(z, extra)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return mean and quantile of a standard normal."""
    return NullReference(0.0, 1.6448536269514722, 0.0)


METRIC = FormulaMetric(
    slug="spiegelhalter_z",
    title="Spiegelhalter's z",
    unit="standard deviations",
    range=(None, None),
    direction="zero",
    formula="Σ_i (y_i - s_i)(1 - 2 s_i) / sqrt(Σ_i (1 - 2 s_i)^2 s_i (1 - s_i))",
    search_words={"Spiegelhalter test": "", "Z statistic": ""},
    source="Spiegelhalter (1986); two-sided p-value",
    options=("scope",),
    read=read,
    of_cells=each_division(of_cells),
    no_interval="test_statistic",
    null=null,
    null_of_units=True,
)
