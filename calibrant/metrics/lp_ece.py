"""Calibration error of any order p: the p-th root of the weighted mean of gaps to the power p.

Order 1 is `ece`, 2 is `rmsce`. Larger orders emphasise the largest gaps and tend to `mce`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant.core.query import TIES, Option
from calibrant.core.view import View
from calibrant.inference.gap_tables import GapForm
from calibrant.inference.intervals import GapStatistic
from calibrant.metrics.base import Estimate, GapMetric, share
from calibrant.metrics.ece import ece_null
from calibrant.metrics.rmsce import rmsce_null

ORDER = Option(
    "order",
    2.0,
    "Order p of the calibration error: power of the gaps, and root of their mean.",
    low=1.0,
    high=100.0,
)


# Orders that are metrics of their own have the same null reference.
_CLOSED_NULLS = {1.0: ece_null, 2.0: rmsce_null}


def order_statistic(order: float) -> GapStatistic:
    """Return the p-th root of the mean of |gap|^p by weight; (..., n_tables, n_bins) to (...).

    Source
    ------
    Mimori et al. (AISTATS 2021), definition 2; Kumar, Liang, Ma (NeurIPS 2019).

    Examples
    --------
    >>> float(order_statistic(3.0)(np.array([[1.0, 1.0]]), np.array([[0.5, -0.5]])))
    0.5
    """
    return lambda weight, gap: (
        (share(weight) * np.abs(gap) ** order).sum(axis=(-1, -2)) ** (1.0 / order)
    )


@dataclass(frozen=True)
class OrderMetric(GapMetric):
    """A statistic of gaps with a requested power."""

    def requested(self, view: View) -> GapMetric:
        order = float(ORDER.of(view.pane_query))
        statistic = order_statistic(order)
        fields = {name: getattr(self, name) for name in GapMetric.__dataclass_fields__}
        return GapMetric(
            **fields
            | {"statistic": lambda bias: statistic, "closed_null": _CLOSED_NULLS.get(order)}
        )

    def form(self, view: View) -> GapForm:
        return self.requested(view).form(view)

    def value(self, view: View) -> float | None:
        return self.requested(view).value(view)

    def estimate(self, view: View, seed: int) -> Estimate:
        found = self.requested(view).estimate(view, seed)
        return (
            found
            if found.value is None
            else replace(found, extra={**found.extra, "order": float(ORDER.of(view.pane_query))})
        )


METRIC = OrderMetric(
    slug="lp_ece",
    title="Calibration error of order p",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("scope",),
    formula="(Σ_m (W_m/W) |acc(m) - conf(m)|^p)^(1/p), p = order",
    search_words={"CE_p": "", "Lp calibration error": "", "ECE_p": ""},
    source="Mimori et al. (AISTATS 2021), definition 2",
    options=("bins", "binning", "edges", "min_count", "scope"),
    own_options=(TIES, ORDER),
)
