"""True values of metrics in a simulated setting, from the rates of very many rows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.core.documents import Result
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import View
from calibrant.metrics import METRICS
from calibrant.metrics.base import ClasswiseGapMetric, GapMetric
from calibrant.validation.settings import Setting, SimulatedRows, population

Floats = NDArray[np.float64]
BINS = 15


@lru_cache(maxsize=16)
def gaps(setting: Setting, scope: str) -> tuple[Floats, Floats]:
    """Return weights and true gaps of equal-width bins of a scope, (n_tables, BINS) each."""
    rows = population(setting)
    tables = [_binned(score, rate) for score, rate in _pairs(rows, scope)]
    return np.stack([each[0] for each in tables]), np.stack([each[1] for each in tables])


def _pairs(rows: SimulatedRows, scope: str) -> list[tuple[Floats, Floats]]:
    """Return score and rate of each table of a scope."""
    if rows.score.ndim == 1:
        return [(rows.score, rows.rate)]
    if scope == "top_label":
        top = rows.score.argmax(axis=1)
        at = np.arange(len(top)), top
        return [(rows.score[at], rows.rate[at])]
    if scope == "all":
        return [(rows.score.ravel(), rows.rate.ravel())]
    return list(zip(rows.score.T, rows.rate.T, strict=True))


def _binned(score: Floats, rate: Floats) -> tuple[Floats, Floats]:
    place = equal_width_bin(score, BINS)
    weight = np.bincount(place, minlength=BINS).astype(np.float64)
    total = np.bincount(place, rate - score, BINS)
    return weight, np.divide(total, weight, out=np.zeros(BINS), where=weight > 0)


def truth(setting: Setting, slug: str, view: View, found: Result) -> float:
    """Return the population's value of a metric.

    Parameters
    ----------
    setting : Setting
    slug : metric
    view : of the run, for cuts that the data chose
    found : the metric's result, for bins that it left out
    """
    metric = METRICS[slug]
    if isinstance(metric, ClasswiseGapMetric):
        weight, gap = gaps(setting, "classes")
        return float(metric.statistic(weight, gap).mean())
    if isinstance(metric, GapMetric):
        if (metric.binning or view.pane_query.binning) == "equal_mass":
            return _of_cuts(setting, view)
        weight, gap = gaps(setting, metric.scope or view.scope)
        if slug in ("ace", "mce"):
            keep = view.table().cells.weight > 0
            keep[found.get("interval_bins_left_out", [])] = False
            weight, gap = weight * keep, gap * keep
        return float(metric.statistic(0.0)(weight, gap))
    return _of_scores(setting, slug)


def _of_cuts(setting: Setting, view: View) -> float:
    """Return the true mean gap between the cuts of a run's own equal-mass bins."""
    score, total = _cumulated(setting)
    edges = view.binned(view.scope, "equal_mass", view.pane_query.bins).edges
    place = np.searchsorted(score, edges, side="right")
    place[0], place[-1] = 0, len(score)
    return float(np.abs(np.diff(total[place])).sum() / len(score))


@lru_cache(maxsize=4)
def _cumulated(setting: Setting) -> tuple[Floats, Floats]:
    rows = population(setting)
    order = np.argsort(rows.score)
    difference = (rows.rate - rows.score)[order]
    return rows.score[order], np.concatenate([[0.0], np.cumsum(difference)])


@lru_cache(maxsize=64)
def _of_scores(setting: Setting, slug: str) -> float:
    """Return the expected Brier score (both classes), NLL or accuracy."""
    rows = population(setting)
    several = rows.score.ndim > 1
    p = rows.score if several else np.stack([1.0 - rows.score, rows.score], axis=1)
    q = rows.rate if several else np.stack([1.0 - rows.rate, rows.rate], axis=1)
    if slug == "brier":
        return float(((p**2).sum(axis=1) + 1.0 - 2.0 * (p * q).sum(axis=1)).mean())
    if slug == "nll":
        return float(-(q * np.log(np.maximum(p, 1e-300))).sum(axis=1).mean())
    if slug == "accuracy":
        return float(q[np.arange(len(p)), p.argmax(axis=1)].mean())
    raise ValueError(f"no truth of {slug}")
