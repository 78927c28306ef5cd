"""Intervals hold the truth as often as they say, and null references are what calibrated models show."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.batch_sums import BatchSums
from calibrant.metrics import METRICS, PaneQuery, View, compute_metrics
from tests.oracle.panes import fill_part

BINARY = PaneSpec("binary", 2)
SLUGS = ("ece", "rmsce", "debiased_ece", "ace")
RUNS = 200


def outcome_rate(score: np.ndarray, size: float) -> np.ndarray:
    """Truth with gaps of both signs, `size` large."""
    return np.clip(score - size * np.sign(np.sin(9.0 * score)), 0.0, 1.0)


def true_errors(size: float) -> dict[str, float]:
    """Errors of the truth in fifteen bins, from very many scores."""
    score = np.linspace(0.05, 0.95, 400_001)
    at = np.minimum((score * 15).astype(int), 14)
    weight = np.bincount(at, minlength=15).astype(float)
    gap = np.bincount(at, score - outcome_rate(score, size), 15) / np.maximum(weight, 1.0)
    share = weight / weight.sum()
    rms = float(np.sqrt(share @ gap**2))
    ace = float(np.abs(gap[weight > 0]).mean())
    return {"ece": float(share @ np.abs(gap)), "rmsce": rms, "debiased_ece": rms, "ace": ace}


def pane_of(rng: np.random.Generator, n: int, size: float) -> Pane:
    """Only what these metrics read."""
    score = rng.uniform(0.05, 0.95, n)
    label = (rng.random(n) < outcome_rate(score, size)).astype(int)
    batch_sums = BatchSums(Batch.from_columns({"confidences": score, "labels": label}).batch)
    pane = Pane(BINARY)
    for name in ("positive", "counts", "replicates"):
        fill_part(pane[name], batch_sums)
    return pane


# Every number of predictions and every size of gaps once; the other pairs take as long again.
QUICK = ((100, 0.0), (300, 0.02), (2000, 0.1))


@pytest.mark.parametrize(("n", "size"), [
    pytest.param(n, size, marks=[] if (n, size) in QUICK else pytest.mark.slow)
    for n in (100, 300, 2000) for size in (0.0, 0.02, 0.1)
])  # fmt: skip
def test_intervals_cover_at_their_level(n: int, size: float) -> None:
    """Within five points of 95 %, and the error of counting the runs (two standard errors are three points)."""
    rng, truth = np.random.default_rng(int(1000 * size) + n), true_errors(size)
    hits = dict.fromkeys(SLUGS, 0)
    for seed in range(RUNS):
        found = compute_metrics(View(pane_of(rng, n, size), PaneQuery()), SLUGS, seed)
        for slug in SLUGS:
            low, high = found[slug]["interval"]
            hits[slug] += low - 1e-12 <= truth[slug] <= high + 1e-12
    for slug, count in hits.items():
        assert count / RUNS >= 0.90 - 0.03, (slug, count / RUNS)


def curve_errors(size: float) -> dict[str, float]:
    """Errors of the truth that need no bins: all but the first from very many predictions."""
    score = np.linspace(0.05, 0.95, 400_001)
    truth = {"corp_miscalibration": float(((score - outcome_rate(score, size)) ** 2).mean())}
    if not size:
        return truth | {"kde_ece": 0.0, "smooth_ece": 0.0}
    view = View(pane_of(np.random.default_rng(9), 2_000_000, size), PaneQuery())
    return truth | {slug: METRICS[slug].value(view) or 0.0 for slug in ("kde_ece", "smooth_ece")}


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("n", [300, 2000])
def test_intervals_of_curves_cover_at_their_level(n: int, size: float) -> None:
    rng, truth = np.random.default_rng(n), curve_errors(size)
    hits = dict.fromkeys(truth, 0)
    for seed in range(RUNS):
        found = compute_metrics(View(pane_of(rng, n, size), PaneQuery()), truth, seed)
        for slug, number in truth.items():
            low, high = found[slug]["interval"]
            hits[slug] += low - 1e-12 <= number <= high + 1e-12
    for slug, count in hits.items():
        assert count / RUNS >= 0.90 - 0.03, (slug, count / RUNS)


def test_the_null_reference_is_what_calibrated_models_show() -> None:
    rng = np.random.default_rng(4)
    means, above = [], 0
    for seed in range(RUNS):
        pane = pane_of(rng, 800, 0.0)
        found = compute_metrics(View(pane, PaneQuery()), ("ece",), seed)["ece"]
        means.append((found["value"], found["null_mean"]))
        above += found["value"] > found["null_q95"]
    seen, foretold = np.mean(means, axis=0)
    assert seen == pytest.approx(foretold, rel=0.03)
    assert 0.015 <= above / RUNS <= 0.09
