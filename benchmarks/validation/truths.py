"""True values of metrics in a simulated setting, from the rates of very many rows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.validation.settings import Setting, SimulatedRows, population, view_of
from calibrant.core.documents import Result
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import View
from calibrant.metrics import METRICS, compute_metrics
from calibrant.metrics.formula_metric import FormulaMetric
from calibrant.metrics.metric import GapMetric

Floats = NDArray[np.float64]
BINS = 15
_MEANS = ("brier", "nll", "accuracy")
# Metrics of a row's label distribution, which depends on the number of ratings.
_BY_ROW = ("dist_ce", "ent_ce", "rank_cs")
_N_ROWS, _N_RATINGS = 100_000, 1000


@lru_cache(maxsize=64)
def gaps(setting: Setting, scope: str, bins: int = BINS) -> tuple[Floats, Floats]:
    """Return weights and true gaps of equal-width bins of a scope, (n_tables, bins) each."""
    rows = population(setting)
    tables = [_binned(score, rate, bins) for score, rate in _pairs(rows, scope)]
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


def _binned(score: Floats, rate: Floats, bins: int) -> tuple[Floats, Floats]:
    place = equal_width_bin(score, bins)
    weight = np.bincount(place, minlength=bins).astype(np.float64)
    total = np.bincount(place, rate - score, bins)
    return weight, np.divide(total, weight, out=np.zeros(bins), where=weight > 0)


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
    if isinstance(metric, GapMetric):
        statistic = metric.statistic(view.pane_query)[0]
        if metric.is_of_classes:
            return float(statistic(*gaps(setting, "classes")))
        if (metric.binning or view.pane_query.binning) == "equal_mass":
            return _of_cuts(setting, view)
        weight, gap = gaps(setting, metric.scope or view.scope)
        if slug in ("ace", "mce"):
            keep = view.table().cells.weight > 0
            keep[found.get("interval_bins_left_out", [])] = False
            weight, gap = weight * keep, gap * keep
        return float(statistic(weight, gap))
    if isinstance(metric, FormulaMetric) and metric.of_bins is not None:
        return _of_fine_bins(setting, metric, view, found["interval_bins"])
    return _of_scores(setting, slug) if slug in _MEANS else _of_population(setting, slug)


def _of_fine_bins(setting: Setting, metric: FormulaMetric, view: View, bins: int) -> float:
    """Return the value on the equal-width bins that the interval describes."""
    reading = metric.read(view)
    assert metric.of_bins is not None and reading is not None
    weight, gap = gaps(setting, view.scope, bins)
    return float(metric.of_bins(view, reading).statistic(bins)(weight, gap))


@lru_cache(maxsize=64)
def _of_population(setting: Setting, slug: str) -> float:
    """Return the value over very many rows, whose ratings are those of the setting or, for most metrics, the rates themselves."""
    found = compute_metrics(_population_view(setting, slug not in _BY_ROW), [slug])[slug]
    return float(found["value"])


@lru_cache(maxsize=4)
def _population_view(setting: Setting, is_exact: bool) -> View:
    rows = population(setting)
    if is_exact:
        rate = rows.rate if rows.rate.ndim > 1 else np.stack([1.0 - rows.rate, rows.rate], axis=1)
        rows = replace(rows, label=np.rint(rate * _N_RATINGS).astype(np.int64))
    some = {name: getattr(rows, name)[:_N_ROWS] for name in ("score", "rate", "label")}
    free = replace(setting, units=None, weights=0.0)
    return view_of(free, SimulatedRows(**some))


def _of_cuts(setting: Setting, view: View) -> float:
    """Return the true mean gap between the cuts of a run's own equal-mass bins."""
    edges = view.binned(view.scope, "equal_mass", view.pane_query.bins).edges
    score, total = _cumulated(setting, view.scope)
    place = np.searchsorted(score, edges, side="right")
    place[0], place[-1] = 0, len(score)
    return float(np.abs(np.diff(total[place])).sum() / len(score))


@lru_cache(maxsize=4)
def _cumulated(setting: Setting, scope: str) -> tuple[Floats, Floats]:
    score, rate = _pairs(population(setting), scope)[0]
    order = np.argsort(score)
    difference = (rate - score)[order]
    return score[order], np.concatenate([[0.0], np.cumsum(difference)])


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
