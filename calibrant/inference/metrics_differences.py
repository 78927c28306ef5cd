"""Comparison of two windows, or two models, metric by metric: the difference with an interval.

A mean over predictions is a ratio of sums, and its difference is resampled directly. A calibration error is biased upwards where it is
small, which resampling does not remove. Its difference is found by inversion, as its interval is, with the noise of both sides resampled
together. Other metrics with an interval on both sides are combined as if they were independent, which is too wide for what
they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.inference.bin_noise import Draws
from calibrant.inference.gap_tables import GapForm, GapTables, replicates_of
from calibrant.inference.gap_uncertainty import value_gaps
from calibrant.inference.intervals import gap_interval, simulated_at
from calibrant.inference.pairing import (
    INDEPENDENT,
    difference_interval_of_two,
    difference_of,
    ratio_difference,
    replicate_correlation,
)
from calibrant.inference.replication import ReplicateTables, resamples
from calibrant.inference.seeds import SEED
from calibrant.metrics import compute_metrics, requested, view_for
from calibrant.metrics.metric import Metric


def differences(
    view: View, other: View, slugs: Iterable[str], seed: int = SEED
) -> dict[str, Result]:
    """Compute each metric of `view` as `compute_metrics` does, with `against`, `difference` and `difference_interval`.

    Parameters
    ----------
    view, other : with the same query
    slugs : metrics, with options in brackets where they differ from the views'
    seed : of the resamples

    Returns
    -------
    dict by canonical key; an unknown difference is None, an unknown interval has `difference_reason`
    """
    requests = requested(slugs, shared=view.pane_query.options)
    keys = [each.key for each in requests]
    mine, theirs = compute_metrics(view, keys, seed), compute_metrics(other, keys, seed)
    return differences_of(view, other, mine, theirs, seed)


def differences_of(
    view: View,
    other: View,
    mine: Mapping[str, Result],
    theirs: Mapping[str, Result],
    seed: int = SEED,
) -> dict[str, Result]:
    """Return `mine` with `against`, `difference` and `difference_interval`, as `differences` does.

    Parameters
    ----------
    mine, theirs : results of `compute_metrics` for the two views, by the same keys
    """
    requests = requested(list(mine), shared=view.pane_query.options)
    return {
        each.key: mine[each.key]
        | _difference(
            each.metric,
            view_for(view, each),
            view_for(other, each),
            mine[each.key],
            theirs[each.key],
            seed,
        )
        for each in requests
    }


def _difference(
    metric: Metric, view: View, other: View, mine: Result, theirs: Result, seed: int
) -> Result:
    reason = mine.get("reason") or theirs.get("reason")
    return {"against": theirs["value"]} | difference_of(
        mine["value"],
        theirs["value"],
        lambda: _interval(metric, (view, other), (mine, theirs), seed),
        reason,
    )


def _interval(
    metric: Metric, views: tuple[View, View], results: tuple[Result, Result], seed: int
) -> tuple[list[float], str]:
    """Return the interval of a difference by the strategy of the metric: sums over units, gaps, else both intervals."""
    ratios = [metric.paired_sums(each) for each in views]
    if ratios[0] is not None and ratios[1] is not None:
        return ratio_difference(ratios[0], ratios[1], views[0].pane_query.ci)
    for each in results:
        if each.get("interval") is None:
            raise NoResultError(
                each.get("interval_reason") or "no_interval", "a side has no interval"
            )
    forms = [metric.form(each) for each in views]
    if forms[0] is not None and forms[1] is not None:
        return gap_difference(views, (forms[0], forms[1]), seed), PAIRED
    values, intervals = ((results[0][name], results[1][name]) for name in ("value", "interval"))
    return difference_interval_of_two(values, intervals, 0.0, metric.range[0]), INDEPENDENT


PAIRED = "both intervals combined by the correlation of 64 paired unit replicates (MOVER)"


def gap_difference(
    views: tuple[View, View], forms: tuple[GapForm, GapForm], seed: int
) -> list[float]:
    """Return the interval of the value of the first view minus that of the second.

    Parameters
    ----------
    views : with the same query
    forms : the metric's statistic and bins in either
    seed : of the resamples

    Raises
    ------
    NoResultError
        As `gap_uncertainty.value_gaps`, of either.
    """
    draws = _draws(
        [replicates_of(view, form.tables)[0] for view, form in zip(views, forms, strict=True)],
        [form.tables for form in forms],
        seed,
    )
    sides = [
        value_gaps(view, form, seed, drawn)[0]
        for view, form, drawn in zip(views, forms, draws, strict=True)
    ]
    ci = views[0].pane_query.ci
    found = [
        gap_interval(form.statistic, form.of_truth, gaps, ci)
        for form, gaps in zip(forms, sides, strict=True)
    ]
    noise = [
        simulated_at(form.statistic, form.of_truth, gaps, each.corrected)
        for form, gaps, each in zip(forms, sides, found, strict=True)
    ]
    return difference_interval_of_two(
        (found[0].corrected, found[1].corrected),
        (found[0].bounds, found[1].bounds),
        _correlation(noise[0], noise[1]),
        floor=0.0,
    )


def _correlation(mine: Floats, theirs: Floats) -> float:
    """Return the correlation of two statistics over the same resamples; 0 if one of them does not vary."""
    deviation = float(mine.std() * theirs.std())
    together = float(np.mean((mine - mine.mean()) * (theirs - theirs.mean())))
    return together / deviation if deviation > 0 else 0.0


def _draws(
    replicates: list[ReplicateTables], tables: list[GapTables], seed: int
) -> tuple[Draws, Draws]:
    """Return draws of both sides: of the same replicates, and normal ones as correlated as the sides' bins are."""
    places = np.union1d(replicates[0].places, replicates[1].places)
    drawn = resamples(len(places), seed)
    shapes = [each.weight.shape for each in tables]
    own = [
        Draws.of(len(places), shape, by).normal
        for shape, by in zip(shapes, (seed, seed + 1), strict=True)
    ]
    if shapes[0] == shapes[1]:
        sides = zip(replicates, tables, strict=True)
        shared = replicate_correlation(*(each.contributions(of.gap) for each, of in sides))
        own[1] = shared * own[0] + np.sqrt(np.maximum(1.0 - shared**2, 0.0)) * own[1]
    mine, theirs = (
        Draws(drawn[:, np.searchsorted(places, each.places)], normal)
        for each, normal in zip(replicates, own, strict=True)
    )
    return mine, theirs
