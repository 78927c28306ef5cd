"""Cumulative calibration statistics: largest excursion (KS) and range (Kuiper) of the cumulative sums of outcomes minus scores.

The curve is read after each distinct score, so that the order of rows does not matter. From stored state it is read at limits of
cells. `error_bound` is how far it can deviate inside one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.view import View
from calibrant.estimators.cumulative import (
    ks_statistic,
    ks_survival,
    kuiper_statistic,
    kuiper_survival,
)
from calibrant.estimators.cut_error import N_DRAWS
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import NullReference, few, gap_null, independent, piecewise
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue, OfBins, scored_cells

_CONTINUITY = 0.5826
# Below, the intervals contained the true value too rarely in simulations (docs/guarantees.md).
MIN_EFFECTIVE_KS, MIN_EFFECTIVE_KUIPER = 400.0, 200.0


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
        }
        if not view.is_raw:
            extra["error_bound"] = sides * float(np.maximum(*cells.largest_shift).max()) / total
            extra["error_estimate"] = excursion_error(cells, value, sides)
        return MetricValue(value, extra)

    return read


def excursion_error(cells: Cells, value: float, sides: int) -> float:
    """Return the root mean square difference from the value where the rows of a cell are in random order.

    Between a cell's limits the curve is then a Brownian bridge, whose extremes have a known distribution.
    """
    total = float(cells.weight.sum())
    curve = np.concatenate([[0.0], np.cumsum(cells.correct - cells.confidence)])
    divisible = cells.divisible
    variance = np.where(divisible, cells.label_variance, 0.0)
    middle, width = (curve[1:] + curve[:-1]) / 2.0, np.diff(curve)
    draws = np.random.default_rng(7).random((2, N_DRAWS, len(cells)))
    # A walk of so many steps stays below the extremes of the bridge (Siegmund's continuity correction).
    steps = _CONTINUITY * np.sqrt(variance / np.maximum(cells.predictions, 1))
    ends = np.maximum(curve[1:], curve[:-1]), np.minimum(curve[1:], curve[:-1])

    def reach(some: Floats) -> Floats:
        return np.sqrt(width**2 + variance * (-2.0 * np.log(1.0 - some))) / 2.0 - steps

    highest = piecewise(
        lambda some: np.maximum(middle + reach(some), ends[0]).max(axis=1), draws[0]
    )
    lowest = piecewise(lambda some: np.minimum(middle - reach(some), ends[1]).min(axis=1), draws[1])
    top, bottom = np.maximum(highest, 0.0), np.minimum(lowest, 0.0)
    found = top - bottom if sides == 2 else np.maximum(top, -bottom)
    return float(np.sqrt(np.mean((found / total - value) ** 2)))


def _of_bins(
    statistic: GapStatistic, min_effective: float
) -> Callable[[View, MetricValue], OfBins]:
    def one_table(weight: Floats, gap: Floats) -> Floats:
        return np.asarray(statistic(weight, gap)[..., 0])

    return lambda view, reading: OfBins(lambda bins: one_table, min_effective=min_effective)


def _null(statistic: GapStatistic) -> Callable[[View, MetricValue, int], NullReference]:
    def null(view: View, reading: MetricValue, seed: int) -> NullReference:
        cells = few(independent(scored_cells(view)))
        return gap_null(statistic, cells.weight, cells.null_variance, seed)

    return null


METRICS = (
    FormulaMetric(
        slug="ks",
        title="Kolmogorov-Smirnov calibration error",
        formula="max_t |Σ_{s_i <= t} w_i (y_i - s_i)| / W",
        search_words={"KS error": "", "Kolmogorov-Smirnov": "", "ECCE-MAD": ""},
        source="Gupta et al. (ICLR 2021); p-value of Arrieta-Ibarra et al. (JMLR 2022)",
        options=("scope",),
        read=_reader(ks_statistic, ks_survival, 1),
        of_bins=_of_bins(ks_statistic, MIN_EFFECTIVE_KS),
        null=_null(ks_statistic),
    ),
    FormulaMetric(
        slug="kuiper",
        title="Kuiper calibration error",
        formula="max_t - min_t of Σ_{s_i <= t} w_i (y_i - s_i) / W",
        search_words={"ECCE-R": "", "Kuiper": "", "cutoff calibration error": ""},
        source="Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu (JMLR 2022)",
        options=("scope",),
        read=_reader(kuiper_statistic, kuiper_survival, 2),
        of_bins=_of_bins(kuiper_statistic, MIN_EFFECTIVE_KUIPER),
        null=_null(kuiper_statistic),
    ),
)
