"""Typical errors of numbers from cells: near the true ones, and far below the bounds that hold for any rows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import softmax

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics

SLUGS = ("adaptive_ece", "ece_sweep", "nixon_ace", "tace", "ks", "kuiper", "auc")
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
    off, estimate, bound = errors()[slug].T
    assert (off <= bound).all() and (estimate <= bound).all()
    typical = np.sqrt((off**2).mean())
    # The running sum of ks and kuiper often ends at its peak, where the order inside cells does not matter.
    most = 100.0 if slug in ("ks", "kuiper") else 12.0
    assert typical / 2.5 <= np.sqrt((estimate**2).mean()) <= most * typical
    assert bound.mean() > 4.0 * estimate.mean()


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
