"""The table behind the uncertainty diagram: naive bins, intervals that hold, the ideal curve."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.results.uncertainty import uncertainty_of


def view_of(
    seed: int, n_classes: int, n: int = 800, bins: int = 10, **columns: object
) -> tuple[View, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), n)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, n_classes - 1)
    batch = Batch.from_columns(
        {"probabilities": p, "labels": labels} | columns, task="multiclass"
    ).batch
    pane = Pane(PaneSpec("multiclass", n_classes))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(bins=bins)), p, labels


@pytest.mark.parametrize("n_classes", [2, 4])
def test_bins_are_those_of_the_rows(n_classes: int) -> None:
    view, p, labels = view_of(1, n_classes)
    found = uncertainty_of(view).to_dict()
    entropy = -(p * np.log(p)).sum(axis=1) / np.log(n_classes)
    wrong = p.argmax(axis=1) != labels
    assert len(found["table"]) == 10
    for i, row in enumerate(found["table"]):
        own = (entropy > i / 10) & (entropy <= (i + 1) / 10)
        assert row["weight"] == own.sum()
        if own.any():
            assert row["mean_uncertainty"] == pytest.approx(entropy[own].mean())
            assert row["error_rate"] == pytest.approx(wrong[own].mean())
            assert row["interval"][0] <= row["error_rate"] <= row["interval"][1]
        else:
            assert (row["mean_uncertainty"], row["interval"]) == (None, None)
    assert found["value"] == compute_metrics(view, ["uce"])["uce"]["value"]
    assert (found["ideal_curve"] is None) == (n_classes > 2)


def test_two_classes_have_their_ideal_curve() -> None:
    view, _, _ = view_of(2, 2)
    found = uncertainty_of(view).to_dict()
    curve = found["ideal_curve"]
    error = np.array(curve["error"][1:-1])
    entropy = -(error * np.log2(error) + (1 - error) * np.log2(1 - error))
    assert entropy == pytest.approx(curve["uncertainty"][1:-1], abs=1e-9)
    # A calibrated model errs as the curve says.
    for row in found["table"]:
        if row["weight"] > 60:
            assert row["error_rate"] == pytest.approx(row["ideal_error"], abs=0.2)


def test_intervals_widen_where_a_units_predictions_share_their_fate() -> None:
    rows = {"units": [f"u{i // 20}" for i in range(800)]}
    plain, shared = (
        uncertainty_of(view_of(3, 3, **each)[0]).to_dict()["table"] for each in ({}, rows)
    )
    for one, other in zip(plain, shared, strict=True):
        if one["weight"]:
            assert (
                other["interval"][1] - other["interval"][0]
                >= one["interval"][1] - one["interval"][0]
            )


def test_an_empty_window_has_no_table() -> None:
    found = uncertainty_of(View(Pane(PaneSpec("binary", 2)), PaneQuery())).to_dict()
    assert (found["table"], found["value"], found["reason"]) == ([], None, "no_data")
