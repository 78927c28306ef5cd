"""Reference width of intervals: the same inversion by an oracle that knows the noise, from 2,000 fresh samples of the true model.

The range of the estimates themselves is no reference where true gaps are small: an interval that contains 0 and each small error that
the data do not exclude must be wider than the scatter of the estimates under one of them. It is reported next to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.validation.settings import Setting, rows_of, view_of
from benchmarks.validation.truths import gaps
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.intervals import along_rays, gap_interval
from calibrant.metrics import METRICS
from calibrant.metrics.metric import GapMetric, Metric

Floats = NDArray[np.float64]
N_FRESH = 2000


@dataclass
class Oracle:
    """Fresh samples of a setting: values of metrics, and weights and noise of their tables."""

    setting: Setting
    values: dict[str, Floats]
    weight: dict[str, Floats]
    noise: dict[str, Floats]

    def width(self, slug: str, view: View) -> float:
        """Return the width of the oracle's interval from the gaps of a run; the range of estimates for means."""
        scope = _scope(METRICS[slug], view)
        if scope is None:
            return self.range_of_estimates(slug)
        weight, gap = _tables(METRICS[slug], view)
        statistic = _statistic(METRICS[slug])
        low, high = gap_interval(
            statistic,
            statistic,
            along_rays(weight, gap, self.weight[scope], self.noise[scope]),
            0.95,
        ).bounds
        return high - low

    def range_of_estimates(self, slug: str) -> float:
        low, high = np.quantile(self.values[slug], [0.025, 0.975])
        return float(high - low)


def oracle_of(
    setting: Setting, slugs: tuple[str, ...], seed: int, n_fresh: int = N_FRESH
) -> Oracle:
    """Draw the fresh samples of a setting."""
    rng = np.random.default_rng([seed, 1])
    found = Oracle(setting, {slug: np.empty(n_fresh) for slug in slugs}, {}, {})
    stored: dict[str, list[tuple[Floats, Floats]]] = {}
    for run in range(n_fresh):
        view = view_of(setting, rows_of(setting, rng), run)
        taken: set[str] = set()
        for slug in slugs:
            found.values[slug][run] = METRICS[slug].value(view)
            scope = _scope(METRICS[slug], view)
            if scope is not None and scope not in taken:
                taken.add(scope)
                stored.setdefault(scope, []).append(_tables(METRICS[slug], view))
    for scope, tables in stored.items():
        weight = np.stack([each[0] for each in tables])
        noise = np.stack([each[1] for each in tables]) - gaps(setting, scope)[1]
        noise[weight <= 0] = 0.0
        found.weight[scope], found.noise[scope] = weight, noise
    return found


def _scope(metric: Metric, view: View) -> str | None:
    """Return the key of a metric's equal-width tables, None if it has none."""
    if metric.is_of_classes:
        return "classes"
    is_plain = view.pane_query.binning == "equal_width" and metric.binning is None
    return metric.scope or view.scope if isinstance(metric, GapMetric) and is_plain else None


def _tables(metric: Metric, view: View) -> tuple[Floats, Floats]:
    form = metric.form(view)
    assert form is not None
    return form.tables.weight, form.tables.gap


def _statistic(metric: Metric):  # type: ignore[no-untyped-def]
    assert isinstance(metric, GapMetric)
    return metric.statistic(PaneQuery())[0]
