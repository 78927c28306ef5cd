<<<<<<< HEAD
"""Coverage of labels, its gradient, and delays of labels against raw rows."""

from __future__ import annotations

import json
from dataclasses import replace

=======
"""Intervals hold the truth as often as they say, and null references are what calibrated models show."""

from __future__ import annotations

>>>>>>> main
import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
<<<<<<< HEAD
from calibrant.accumulators.delays import DELAY_BINS, RELATIVE_ERROR, UNKNOWN, delay_bin
from calibrant.coverage import coverage

SPEC = PaneSpec("binary", 2)


def pane_of(p: np.ndarray, labelled: np.ndarray, delays: np.ndarray | None = None) -> Pane:
    labels = [1 if each else None for each in labelled]
    columns = {"confidences": p, "labels": labels, "ids": [f"i{i}" for i in range(len(p))]}
    batch = Batch.from_columns(columns).batch
    pane = Pane(SPEC)
    pane.fill(batch if delays is None else replace(batch, delays=delay_bin(delays)))
    return pane


def test_quantiles_are_those_of_the_rows_within_the_grid() -> None:
    rng = np.random.default_rng(1)
    delays = rng.lognormal(11, 2, 4000)
    half = np.arange(4000) < 2000
    whole = pane_of(rng.random(2000), np.ones(2000, bool), delays[half])
    whole.merge(pane_of(rng.random(2000), np.ones(2000, bool), delays[~half]))
    told = coverage(whole)["delay"]
    assert told["n"] == 4000
    for name, share in (("median_s", 0.5), ("q90_s", 0.9), ("q99_s", 0.99)):
        exact = np.quantile(delays, share, method="inverted_cdf")
        assert exact * (1 - 1e-12) <= told[name] <= exact * (1 + RELATIVE_ERROR)


def test_bins_of_delays_cover_everything() -> None:
    assert delay_bin([-5, 0, 0.99]).tolist() == [0, 0, 0]
    assert delay_bin([1e12]) == DELAY_BINS - 1
    assert (np.diff(delay_bin(np.geomspace(0.1, 1e9, 10_000))) >= 0).all()


def test_unknown_delays_and_unlabelled_rows_do_not_count() -> None:
    p = np.array([0.1, 0.4, 0.8])
    pane = pane_of(p, np.array([True, False, True]), np.array([5.0, 5.0, 5.0]))
    assert coverage(pane)["delay"]["n"] == 1 + 1
    unknown = replace(
        Batch.from_columns({"confidences": [0.5], "labels": [1]}).batch, delays=np.array([UNKNOWN])
    )
    pane.fill(unknown)
    assert coverage(pane)["delay"]["n"] == 2
    pane.subtract(pane.copy())
    assert coverage(pane)["delay"]["median_s"] is None


def test_the_gradient_is_seen_where_there_is_one_and_covers_zero_where_there_is_none() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(100):
        p = rng.random(400)
        told = coverage(pane_of(p, rng.random(400) < 0.6))["gradient"]
        missed += not told["interval"][0] <= 0 <= told["interval"][1]
    assert missed <= 12
    p = rng.random(2000)
    told = coverage(pane_of(p, rng.random(2000) < 0.2 + 0.6 * p))
    assert told["gradient"]["interval"][0] < 0.6 < told["gradient"]["interval"][1]
    assert told["gradient"]["p_value"] < 1e-6
    assert told["coverage"] == pytest.approx(0.5, abs=0.05)
    assert told["by_bin"][0] < 0.35 < 0.65 < told["by_bin"][-1]


def test_nothing_is_not_zero_and_is_json() -> None:
    told = coverage(Pane(SPEC))
    assert (told["coverage"], told["gradient"]["slope"], told["n_predictions"]) == (None, None, 0)
    json.dumps(told, allow_nan=False)
    one = coverage(pane_of(np.array([0.3]), np.array([False])))
    assert (one["coverage"], one["gradient"]["slope"]) == (0.0, None)
=======
from calibrant.filling import Filling
from calibrant.metrics import Question, View, compute_metrics

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
    filling = Filling(Batch.from_columns({"confidences": score, "labels": label}).batch)
    pane = Pane(BINARY)
    for name in ("positive", "counts", "replicates"):
        pane[name].fill(filling)
    return pane


@pytest.mark.parametrize("size", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("n", [300, 2000])
def test_intervals_cover_at_their_level(n: int, size: float) -> None:
    """Within five points of 95 %, and the error of counting the runs (two standard errors are three points)."""
    rng, truth = np.random.default_rng(int(1000 * size) + n), true_errors(size)
    hits = dict.fromkeys(SLUGS, 0)
    for seed in range(RUNS):
        found = compute_metrics(View(pane_of(rng, n, size), Question()), SLUGS, seed)
        for slug in SLUGS:
            low, high = found[slug]["interval"]
            hits[slug] += low - 1e-12 <= truth[slug] <= high + 1e-12
    for slug, count in hits.items():
        assert 0.90 - 0.03 <= count / RUNS, (slug, count / RUNS)


def test_the_null_reference_is_what_calibrated_models_show() -> None:
    rng = np.random.default_rng(4)
    means, above = [], 0
    for seed in range(RUNS):
        pane = pane_of(rng, 800, 0.0)
        found = compute_metrics(View(pane, Question()), ("ece",), seed)["ece"]
        means.append((found["value"], found["null_mean"]))
        above += found["value"] > found["null_q95"]
    seen, foretold = np.mean(means, axis=0)
    assert seen == pytest.approx(foretold, rel=0.03)
    assert 0.015 <= above / RUNS <= 0.09
>>>>>>> main
