"""Two windows, or two models, compared metric by metric: the difference with an interval.

Both sides fall into the same sixty-four replicates by the hash of the unit, so one draw of replicates resamples both: a unit
that stands on both sides stays on both, which takes what they have in common out of the difference, and units that stand on
one side only are independent anyway.

A score is a mean, and its difference is resampled as it is. A calibration error is biased upwards where it is small, which no
resample undoes; there the sides' own intervals, which know of the bias, are put together, with the correlation of the resamples.

Source: Zou and Donner (Statistics in Medicine 2008) for intervals put together (MOVER).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from calibrant.filling import N_REPLICATES
from calibrant.metrics import METRICS, compute_metrics
from calibrant.metrics.base import (
    ClasswiseGapMetric,
    GapMetric,
    Metric,
    SumMetric,
    mean_over_classes,
)
from calibrant.replication import (
    ReplicateTables,
    class_tables,
    resamples,
    score_columns,
    tables_for,
)
from calibrant.view import NotAnswerable, View

RESAMPLED = "bootstrap of 64 paired unit replicates, normal"
PUT_TOGETHER = "both intervals put together by the correlation of 64 paired unit replicates (MOVER)"
_HARDLY_ANY = 1e-3
_TOLD_APART = 0.1
Floats = NDArray[np.float64]


def differences(view: View, other: View, slugs: Iterable[str], seed: int = 0) -> dict[str, dict[str, Any]]:
    """Each metric of `view` as `compute_metrics` tells it, with `against`, `difference` and `difference_interval`.

    Parameters
    ----------
    view, other : asked the same question
    slugs : metrics
    seed : of the resamples

    Returns
    -------
    dict by slug; a difference that cannot be told is None, an interval that cannot has `difference_reason`
    """
    slugs = list(slugs)
    mine, theirs = compute_metrics(view, slugs, seed), compute_metrics(other, slugs, seed)
    return {slug: mine[slug] | _difference(METRICS[slug], view, other, mine[slug], theirs[slug], seed) for slug in slugs}


def _difference(
    metric: Metric, view: View, other: View, mine: dict[str, Any], theirs: dict[str, Any], seed: int
) -> dict[str, Any]:
    told: dict[str, Any] = {"against": theirs["value"], "difference": None, "difference_interval": None}
    if mine["value"] is None or theirs["value"] is None:
        return told | {"difference_reason": mine.get("reason") or theirs.get("reason")}
    told["difference"] = mine["value"] - theirs["value"]
    try:
        if isinstance(metric, SumMetric):
            return told | _resampled(metric, view, other, seed)
        return told | _put_together(metric, view, other, (mine, theirs), seed)
    except NotAnswerable as refusal:
        return told | {"difference_reason": refusal.reason}


def _resampled(metric: SumMetric, view: View, other: View, seed: int) -> dict[str, Any]:
    drawn = resamples(N_REPLICATES, seed)
    seen = _ratios(metric, view, drawn) - _ratios(metric, other, drawn)
    once = np.ones((1, N_REPLICATES))
    centre = float((_ratios(metric, view, once) - _ratios(metric, other, once))[0])
    reach = float(norm.ppf(0.5 + view.question.ci / 2.0) * seen.std(ddof=1) * np.sqrt(N_REPLICATES / (N_REPLICATES - 1)))
    return {"difference_interval": [centre - reach, centre + reach], "difference_method": RESAMPLED}


def _put_together(
    metric: Metric, view: View, other: View, answers: tuple[dict[str, Any], dict[str, Any]], seed: int
) -> dict[str, Any]:
    mine, theirs = answers
    for each in answers:
        if each.get("interval") is None:
            raise NotAnswerable(each.get("interval_reason") or "no_interval", "a side has no interval")
    drawn = resamples(N_REPLICATES, seed)
    one, two = _errors(metric, view, drawn), _errors(metric, other, drawn)
    # Where a side cannot be told from a calibrated one, the signs of its gaps are not known, and so not what it shares.
    told_apart = all(each["interval"][0] > _TOLD_APART * each["value"] for each in answers)
    spread = float(one.std() * two.std()) if told_apart else 0.0
    correlation = float(np.mean((one - one.mean()) * (two - two.mean()))) / spread if spread else 0.0
    middles = [_middle(metric, side, seed) for side in (view, other)]
    below, above = (abs(middles[0] - bound) for bound in mine["interval"])
    other_below, other_above = (abs(middles[1] - bound) for bound in theirs["interval"])
    bounds = [
        middles[0] - middles[1] - _together(below, other_above, correlation),
        middles[0] - middles[1] + _together(above, other_below, correlation),
    ]
    return {"difference_interval": bounds, "difference_method": PUT_TOGETHER}


def _middle(metric: Metric, view: View, seed: int) -> float:
    """The truth under which the observed value is the middle one: where an interval of hardly any level lies."""
    narrow = View(view.pane, view.question)
    # Below the level that anybody may ask for.
    narrow.question = replace(view.question, ci=_HARDLY_ANY)
    bounds = metric.estimate(narrow, seed).interval
    if bounds is None:
        raise NotAnswerable("no_interval", "a side has no interval")
    return (bounds[0] + bounds[1]) / 2.0


def _together(one: float, two: float, correlation: float) -> float:
    return float(np.sqrt(max(one**2 + two**2 - 2.0 * correlation * one * two, 0.0)))


def _errors(metric: Metric, view: View, drawn: Floats) -> Floats:
    """The metric of resampled replicates, (n_draws, 64) to (n_draws,)."""
    bins = view.question.bins
    if isinstance(metric, GapMetric):
        return metric.statistic(0.0)(*_gaps(tables_for(view, metric.scope or view.scope, bins), drawn))
    if isinstance(metric, ClasswiseGapMetric):
        return mean_over_classes(metric.statistic)(*_gaps(class_tables(view, bins), drawn))
    raise NotAnswerable("not_replicated", "replicates do not carry this metric")


def _ratios(metric: SumMetric, view: View, drawn: Floats) -> Floats:
    columns = score_columns(view)
    chosen = drawn[:, columns["places"].astype(np.int64)]
    top, bottom = chosen @ columns[metric.column], chosen @ columns[metric.weight]
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def _gaps(tables: ReplicateTables, drawn: Floats) -> tuple[Floats, Floats]:
    """Weight and gap of the resampled tables, each (n_draws, n_tables, n_bins)."""
    chosen = drawn[:, tables.places]
    weight = np.tensordot(chosen, tables.weight, axes=1)
    difference = np.tensordot(chosen, tables.difference, axes=1)
    return weight, np.divide(difference, weight, out=np.zeros_like(weight), where=weight > 0)
