"""Typical errors of numbers from cells: near the true ones, and far below the bounds that hold for any rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import softmax

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.estimators import placement_error
from calibrant.estimators.placement_error import divided_ratings
from calibrant.metrics import METRICS, compute_metrics

SLUGS = (
    *(
        "adaptive_ece",
        "ece_sweep",
        "nixon_ace",
        "tace",
        "ks",
        "kuiper",
        "auc",
        "macro_ce",
        "zhang_kde_ece",
    ),
    *(
        "smooth_ece",
        "spiegelhalter_z",
        "hosmer_lemeshow",
        "corp_miscalibration",
        "corp_discrimination",
    ),
    "l2_ece_squared",
)
RUNS = 4


@cache
def errors() -> dict[str, np.ndarray]:
    """By slug and run: true error, estimate, bound."""
    result: dict[str, list[tuple[float, float, float]]] = {slug: [] for slug in SLUGS}
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(2000, 10)) * 1.5
        z[np.arange(2000), rng.integers(0, 10, 2000)] += rng.gamma(3, 3, 2000)
        labels = (softmax(z / 1.5, axis=1).cumsum(axis=1) > rng.random((2000, 1))).argmax(axis=1)
        batch = Batch.from_columns({"probabilities": softmax(z, axis=1), "labels": labels}).batch
        pane = Pane(PaneSpec("multiclass", 10))
        pane.fill_batch(batch)
        views = View(pane, PaneQuery()), View(pane, PaneQuery(), batch)
        kept, raw = (compute_metrics(view, SLUGS, 1) for view in views)
        for slug in SLUGS:
            assert "error_estimate" not in raw[slug] or raw[slug]["error_estimate"] == 0.0
            off = abs(kept[slug]["value"] - raw[slug]["value"])
            result[slug].append((off, kept[slug]["error_estimate"], kept[slug]["error_bound"]))
    return {slug: np.array(values) for slug, values in result.items()}


@pytest.mark.parametrize("slug", SLUGS)
def test_estimates_are_near_the_error_and_below_the_bound(slug: str) -> None:
    off, estimate, bound = errors()[slug].T.astype(float)  # No bound is nan.
    assert not (off > bound).any() and not (estimate > bound).any()
    typical = np.sqrt((off**2).mean())
    # The running sum of ks and kuiper often ends at its peak, where the order inside cells does not matter.
    # Errors of smooth_ece and l2_ece_squared are below 1e-8, where rounding and chance decide.
    most = 100.0 if slug in ("ks", "kuiper", "smooth_ece") else 12.0
    assert typical / 2.5 <= np.sqrt((estimate**2).mean()) <= most * typical
    assert not bound.mean() <= 2.0 * estimate.mean()


def test_each_bound_has_an_estimate() -> None:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), 500)
    labels = (p.cumsum(axis=1) > rng.random((500, 1))).argmax(axis=1)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(Batch.from_columns({"probabilities": p, "labels": labels}).batch)
    found = compute_metrics(View(pane, PaneQuery()), list(METRICS), 1)
    bounded = {slug for slug, one in found.items() if "error_bound" in one}
    assert len(bounded) > 14
    assert {slug for slug in bounded if "error_estimate" not in found[slug]} == set()


def test_parts_have_the_sums_of_their_cells() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(400)
    pane = Pane(PaneSpec("binary", 2))
    labels = (rng.random(400) < p).astype(int)
    pane.fill_batch(Batch.from_columns({"confidences": p, "labels": labels}).batch)
    cells = View(pane, PaneQuery()).cells_of("positive")
    halved, correct = divided_ratings(cells)
    found = replace(halved, correct=correct[0])
    assert len(found) > len(cells)
    for name in ("count", "predictions", "weight", "confidence", "correct", "weight_squared"):
        total = getattr(found, name).sum()
        assert total == pytest.approx(getattr(cells, name).sum()), name
    filled = found.select(found.weight > 0)
    assert (np.diff(filled.mean) >= 0).all()
    assert ((filled.correct >= -1e-12) & (filled.correct <= filled.weight + 1e-12)).all()


def test_cells_of_one_score_have_no_error() -> None:
    """Scores on edges of the grid are stored as they are."""
    rng = np.random.default_rng(0)
    p = rng.integers(0, 61, 600) / 60
    labels = (rng.random(600) < p).astype(int).tolist()
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns({"confidences": p, "labels": labels}).batch)
    found = compute_metrics(View(pane, PaneQuery()), ["adaptive_ece", "ks", "auc"], 1)
    for slug, one in found.items():
        assert one["error_estimate"] == pytest.approx(0.0, abs=1e-12), slug


def test_many_cells_are_divided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their estimate was 0."""
    rng = np.random.default_rng(4)
    p = rng.random(4000)
    pane = Pane(PaneSpec("binary", 2))
    labels = (rng.random(4000) < p).astype(int)
    pane.fill_batch(Batch.from_columns({"confidences": p, "labels": labels}).batch)
    monkeypatch.setattr(placement_error, "MANY", 10)
    found = compute_metrics(View(pane, PaneQuery()), ["corp_miscalibration"], 1)
    assert found["corp_miscalibration"]["error_estimate"] > 0.0
