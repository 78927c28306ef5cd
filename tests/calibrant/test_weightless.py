"""Predictions without weight: nothing is said of what has no mass, and nothing fails for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.inference.reliability_table import reliability
from calibrant.metrics import METRICS, compute_metrics
from calibrant.raters.disagreement_report import disagreement_report

N = 150


def view_of(weights: Any, n_classes: int = 3, **asked: Any) -> View:
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(n_classes), N)
    labels = rng.integers(0, n_classes, (N, 2)).tolist()
    task = "binary" if n_classes == 2 else "multiclass"
    columns = {"probabilities": p, "labels": labels, "weights": np.asarray(weights, float)}
    pane = Pane(PaneSpec(task, n_classes))
    pane.fill_batch(Batch.from_columns(columns, task=task, n_classes=n_classes).batch)
    return View(pane, PaneQuery(**asked))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_window_without_weight_has_no_value_and_no_null_reference(n_classes: int) -> None:
    for slug, result in compute_metrics(view_of(np.zeros(N), n_classes), sorted(METRICS)).items():
        assert (result["value"], result["interval"], result["null_mean"], result["null_q95"]) == (
            None,
        ) * 4, slug
        assert result["reason"], slug


@pytest.mark.parametrize("n_classes", [2, 3])
def test_units_with_weight_are_counted_for_intervals_and_no_others(n_classes: int) -> None:
    one = compute_metrics(view_of(np.arange(N) == 5, n_classes), sorted(METRICS))
    assert one["ece"]["value"] is not None
    assert {
        slug: result["interval"] for slug, result in one.items() if result["interval"] is not None
    } == {}
    assert one["ece"]["interval_reason"] == "too_few_units"


def test_bins_without_mass_are_reported_and_drawn_by_nothing() -> None:
    complete = reliability(view_of(np.ones(N), bins=10))["table"]
    half = reliability(view_of(np.arange(N) % 2, bins=10, min_count=5))["table"]
    assert any(row["weight"] == 0.0 for row in half) and any(row["weight"] > 0.0 for row in half)
    for row in complete + half:
        result = [row["mean_confidence"], row["accuracy"], row["gap"], row["interval"]]
        assert [each is None for each in result] == [row["weight"] == 0.0] * 4
        assert row["weight"] or row["n_effective"] == 0.0


def test_disagreement_of_ratings_without_weight_is_not_answerable() -> None:
    labels = [[0, 1], [1, 1], [2]]
    columns = {"probabilities": [[0.2, 0.3, 0.5]] * 3, "labels": labels, "weights": [0.0, 0.0, 1.0]}
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(Batch.from_columns(columns).batch)
    with pytest.raises(NoResultError, match="has weight"):
        disagreement_report(View(pane, PaneQuery()))
    found = compute_metrics(
        View(pane, PaneQuery()), ["epistemic_loss", "disagreement_loss", "disagreement_ce"]
    )
    assert {
        slug: (result["value"], result["reason"]) for slug, result in found.items()
    } == dict.fromkeys(found, (None, "no_data"))
