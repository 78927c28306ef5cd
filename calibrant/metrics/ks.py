"""Cumulative calibration statistics: the largest excursion (KS) and the range (Kuiper) of running hits minus scores.

The curve is read after each distinct score, so that the order of rows does not matter. From stored state it is read at limits of
cells. `error_bound` is how far it can deviate inside one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.core.view import View
from calibrant.estimators.cumulative import (
    ks_statistic,
    ks_survival,
    kuiper_statistic,
    kuiper_survival,
)
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import NullReference, few, gap_null, independent
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue, OfBins, scored_cells

Floats = NDArray[np.float64]


def _reader(
    statistic: GapStatistic, survival: Callable[[float], float], sides: int
) -> Callable[[View], MetricValue | None]:
    """Return a reader of value, standard deviation of the curve's end under the null, p-value and bound; `sides` of a range."""

    def read(view: View) -> MetricValue | None:
        cells = scored_cells(view)
        if not len(cells):
            return None
        total = float(cells.weight.sum())
        value = float(statistic(cells.weight, cells.gap))
        sigma = float(np.sqrt(max(cells.null_variance.sum(), 0.0))) / total
        extra = {
            "sigma": sigma,
            "p_value": survival(value / sigma) if sigma else None,
            "scope": view.scope,
        }
        if not view.is_raw:
            extra["error_bound"] = sides * float(np.maximum(*cells.largest_shift).max()) / total
        return MetricValue(value, extra)

    return read


def _of_bins(statistic: GapStatistic) -> Callable[[View, MetricValue], OfBins]:
    def one_table(weight: Floats, gap: Floats) -> Floats:
        return np.asarray(statistic(weight, gap)[..., 0])

    return lambda view, reading: OfBins(lambda bins: one_table)


def _null(statistic: GapStatistic) -> Callable[[View, MetricValue, int], NullReference]:
    def null(view: View, reading: MetricValue, seed: int) -> NullReference:
        cells = few(independent(scored_cells(view)))
        return gap_null(statistic, cells.weight, cells.null_variance, seed)

    return null


METRICS = (
    FormulaMetric(
        slug="ks",
        title="Kolmogorov-Smirnov calibration error",
        unit="probability",
        range=(0.0, 1.0),
        direction="lower",
        needs=("scope",),
        formula="max_t |Σ_{s_i <= t} w_i (y_i - s_i)| / W",
        exact=False,
        search_words={"KS error": "", "Kolmogorov-Smirnov": "", "ECCE-MAD": ""},
        source="Gupta et al. (ICLR 2021); p-value of Arrieta-Ibarra et al. (JMLR 2022)",
        options=("scope",),
        read=_reader(ks_statistic, ks_survival, 1),
        of_bins=_of_bins(ks_statistic),
        null=_null(ks_statistic),
    ),
    FormulaMetric(
        slug="kuiper",
        title="Kuiper calibration error",
        unit="probability",
        range=(0.0, 1.0),
        direction="lower",
        needs=("scope",),
        formula="max_t - min_t of Σ_{s_i <= t} w_i (y_i - s_i) / W",
        exact=False,
        search_words={"ECCE-R": "", "Kuiper": ""},
        source="Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu (JMLR 2022)",
        options=("scope",),
        read=_reader(kuiper_statistic, kuiper_survival, 2),
        of_bins=_of_bins(kuiper_statistic),
        null=_null(kuiper_statistic),
    ),
)
