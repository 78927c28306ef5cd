"""The temperature as a map: what it is fitted to, and labels that no temperature is too low for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import apply, fit
from calibrant.calibrators.candidate_comparison import CandidateComparison, recommend
from calibrant.calibrators.temperature.fit import fit_temperature, fit_temperature_exact
from calibrant.core.query import PaneQuery
from calibrant.core.view import View


def batch_of(z: Any, labels: Any, **more: Any) -> Batch:
    ids = [f"i{i}" for i in range(len(labels))]
    return Batch.from_columns({"logits": z, "labels": labels, "ids": ids, **more}).batch


def view_of(batch: Batch, *, raw: bool = False, **pane_query: Any) -> View:
    pane = Pane.for_window(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(**pane_query), batch if raw else None)


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
@pytest.mark.parametrize("n_classes", [2, 7])
def test_a_complete_sample_is_what_the_map_is_fitted_to(raters: str, n_classes: int) -> None:
    """To the digits of raw rows, and of `fit_temperature`: one window has one temperature."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(120, n_classes)) * 3
    labels = [
        rng.choice(n_classes, 1 + i % 3, p=row).tolist()
        for i, row in enumerate(softmax(z / 1.7, axis=1))
    ]
    batch = batch_of(z, labels)
    view = view_of(batch, raters=raters)
    found = fit("temperature", view)
    assert (found["fitted_to"], found["sample"]["complete"]) == ("sample", True)
    temperature = found["parameters"]["temperature"]
    assert temperature == pytest.approx(
        fit_temperature_exact(batch, raters=raters)["temperature"], rel=1e-8
    )
    assert (
        temperature
        == fit_temperature(view.pane, raters=raters, rows_if_complete=True)["temperature"]
    )
    if n_classes > 2:
        assert found["evaluation"]["scores"] == "sample"
    view.pane.merge(view.pane)
    merged = fit("temperature", view)
    assert merged["fitted_to"] == "cells" and "sample" not in merged


@pytest.mark.parametrize("method", ["temperature", "class_temperature"])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_of_labels_that_are_always_right_there_is_no_temperature(
    method: str, raw: bool, n_classes: int
) -> None:
    """The best one is 0, which makes every probability 0 or 1; one that is wrong once has a best temperature."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(60, n_classes))
    right = z.argmax(axis=1)
    found = fit(method, view_of(batch_of(z, right), raw=raw))
    json.dumps(found, allow_nan=False)
    assert (found["parameters"], found["reason"]) == (None, "separable") and found["detail"]
    assert found["at_bound"] == (method == "temperature")
    assert found["heldout_reason"] == "separable"
    once = right.copy()
    once[0] = z[0].argmin()
    found = fit(method, view_of(batch_of(z, once), raw=raw))
    assert found["reason"] is None
    assert apply(found, batch_of(z, once)).max() > 0.9


def test_a_temperature_below_the_stored_range_is_found_from_rows_only() -> None:
    """Some labels are wrong, so there is a best temperature, but a smaller one than the state stores."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(2500, 3))
    labels = (softmax(3 * z, axis=1).cumsum(axis=1) > rng.random((2500, 1))).argmax(axis=1)
    small = batch_of(z * 0.01, labels)
    stored = fit("temperature", view_of(small, raw=False))
    assert (stored["parameters"], stored["reason"]) == (None, "beyond_grid") and stored["detail"]
    plain, found = (
        fit("temperature", view_of(batch, raw=True))["parameters"]["temperature"]
        for batch in (batch_of(z, labels), small)
    )
    assert found == pytest.approx(plain * 0.01, rel=1e-6)


def test_no_temperature_is_recommended_where_none_is_given() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(90, 3))
    view = view_of(batch_of(z, z.argmax(axis=1)))
    found = recommend(view)
    assert found["recommendation"]["action"] != "temperature"
    assert found["recommendation"]["evidence"]["candidates"]["temperature"] == {
        "reason": "separable"
    }
    assert CandidateComparison(view).held_out_temperature("nll") == {
        "heldout": None,
        "heldout_reason": "separable",
    }


def test_a_sample_that_is_always_right_leaves_the_temperature_to_the_window() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(3000, 20)) * 2.0
    batch = batch_of(z, z.argmax(axis=1))
    pane = Pane(PaneSpec("multiclass", 20))
    pane.fill_batch(batch)
    kept = pane.sample.batch().prediction_hash
    labels = np.where(
        np.isin(batch.prediction_hash, kept) | (rng.random(3000) > 0.2),
        z.argmax(axis=1),
        z.argmin(axis=1),
    )
    pane = Pane(PaneSpec("multiclass", 20))
    pane.fill_batch(batch_of(z, labels))
    found = recommend(View(pane, PaneQuery()))
    assert found["recommendation"]["action"] == "temperature"
    evidence = found["recommendation"]["evidence"]
    assert evidence["candidates"]["temperature"] == {"reason": "separable"}
    assert evidence["whole_window"]["gain"]["nll"]["interval"][0] > 0
