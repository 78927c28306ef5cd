"""What is counted in the runs of a setting. Each check returns counts by key, which add over runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.validation.oracle import N_FRESH, oracle_of
from benchmarks.validation.settings import Setting, rows_of, view_of
from benchmarks.validation.truths import truth
from calibrant.inference.mean_interval import effective_size
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import compute_metrics

Counts = dict[str, float]
Check = Callable[[Any, tuple[str, ...], int, range], Counts]
REQUIRED_FROM = 200.0
_TINY = 1e-12


def _stream(seed: int, run: int) -> np.random.Generator:
    return np.random.default_rng([seed, 0, run])


def coverage(setting: Setting, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose interval holds the truth, of those with one, and add up widths.

    Runs of at least 200 effective samples, or without weights, are also counted as those in which an interval is required.
    """
    counts: Counts = defaultdict(float)
    for run in runs:
        view = view_of(setting, rows_of(setting, _stream(seed, run)), run)
        required = not setting.weights or effective_size(view) >= REQUIRED_FROM
        for slug, found in compute_metrics(view, slugs).items():
            counts[f"{slug}/runs"] += 1
            counts[f"{slug}/required"] += required
            if found["interval"] is None:
                continue
            low, high = found["interval"]
            true = truth(setting, slug, view, found)
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/required_given"] += required
            counts[f"{slug}/held"] += low - _TINY <= true <= high + _TINY
            counts[f"{slug}/above"] += true > high + _TINY
            counts[f"{slug}/width"] += high - low
    return counts


def width(
    setting: Setting, slugs: tuple[str, ...], seed: int, runs: range, n_fresh: int = N_FRESH
) -> Counts:
    """Add up widths of intervals, of an oracle's from the same data, and the range of `n_fresh` fresh estimates."""
    counts: Counts = defaultdict(float)
    oracle = oracle_of(setting, slugs, seed, n_fresh)
    for run in runs:
        view = view_of(setting, rows_of(setting, _stream(seed, run)), run)
        for slug, found in compute_metrics(view, slugs).items():
            if found["interval"] is None:
                continue
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/width"] += found["interval"][1] - found["interval"][0]
            counts[f"{slug}/oracle"] += oracle.width(slug, view)
            counts[f"{slug}/range"] += oracle.range_of_estimates(slug)
    return counts


def above_null(setting: Setting, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose value is above `null_q95`, of those that have it."""
    counts: Counts = defaultdict(float)
    for run in runs:
        view = view_of(setting, rows_of(setting, _stream(seed, run)), run)
        for slug, found in compute_metrics(view, slugs).items():
            counts[f"{slug}/runs"] += 1
            if found["null_q95"] is None:
                continue
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += found["value"] > found["null_q95"]
    return counts


def contradiction(setting: Setting, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose interval excludes 0 although the null reference explains the value by chance."""
    counts: Counts = defaultdict(float)
    for run in runs:
        view = view_of(setting, rows_of(setting, _stream(seed, run)), run)
        for slug, found in compute_metrics(view, slugs).items():
            if found["interval"] is None or found["null_q95"] is None:
                continue
            counts[f"{slug}/given"] += 1
            by_chance = found["value"] <= found["null_q95"]
            counts[f"{slug}/held"] += by_chance and found["interval"][0] > _TINY
    return counts


def difference_coverage(
    settings: tuple[Setting, Setting], slugs: tuple[str, ...], seed: int, runs: range
) -> Counts:
    """Count runs whose interval of the difference of two windows holds the truth."""
    counts: Counts = defaultdict(float)
    for run in runs:
        rng = _stream(seed, run)
        one, two = (
            view_of(each, rows_of(each, rng), 2 * run + i) for i, each in enumerate(settings)
        )
        for slug, found in differences(one, two, slugs).items():
            counts[f"{slug}/runs"] += 1
            if found["difference_interval"] is None:
                continue
            low, high = found["difference_interval"]
            true = truth(settings[0], slug, one, found) - truth(settings[1], slug, two, found)
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += low - _TINY <= true <= high + _TINY
            counts[f"{slug}/width"] += high - low
    return counts


CHECKS: dict[str, Check] = {
    "coverage": coverage,
    "width": width,
    "above null": above_null,
    "contradiction": contradiction,
    "difference": difference_coverage,
}
