"""Held-out losses of one class of many, against halves parted by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import MAPS, fit
from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.core.query import PaneQuery
from calibrant.core.view import View

ONE_SCORE = [slug for slug, method in MAPS.items() if "class" in method.scopes]
SPEC = PaneSpec("multiclass", 25)


def many(n: int = 600, seed: int = 0, **more: Any) -> tuple[Batch, Pane]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 25)) * 3
    z[:, 3] += 2.5
    labels = (softmax(z / 2, axis=1).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    batch = Batch.from_columns(
        {"logits": z, "labels": labels, "ids": [f"i{i}" for i in range(n)], **more}
    ).batch
    pane = Pane.for_window(SPEC)
    pane.fill_batch(batch)
    return batch, pane


@pytest.mark.parametrize("raw", [True, False])
def test_of_platts_curve_it_is_what_two_regressions_say(raw: bool) -> None:
    batch, pane = many(units=[f"u{i // 2}" for i in range(600)])
    found = fit("platt", View(pane, PaneQuery(scope="class:3"), batch if raw else None))["heldout"]
    rows = labelled_rows(pane.sample.batch(), 0)
    p, hit = rows.probabilities[:, 3], rows.share[:, 3]
    odds, after = np.log(p / (1 - p))[:, None], np.zeros(600)
    for side in (0, 1):
        fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=500).fit(
            odds[rows.half != side], hit[rows.half != side]
        )
        after[rows.half == side] = fitted.predict_proba(odds[rows.half == side])[:, 1]

    def nll(q: np.ndarray) -> np.ndarray:
        return -np.where(hit == 1, np.log(q), np.log1p(-q))

    assert found["before"]["nll"] == pytest.approx(nll(p).mean(), rel=1e-9)
    assert found["after"]["nll"] == pytest.approx(nll(after).mean(), rel=1e-5)
    assert found["after"]["brier"] == pytest.approx(((after - hit) ** 2).mean(), rel=1e-5)
    gain, (low, high) = found["gain"]["nll"]["value"], found["gain"]["nll"]["interval"]
    assert gain == pytest.approx((nll(p) - nll(after)).mean(), rel=1e-4) and low < gain < high
    assert found["n"] == 600 and found["n_units"] == 300
    assert (found["sample"] is None) == raw


@pytest.mark.parametrize("method", ONE_SCORE)
def test_every_map_of_one_class_has_it(method: str) -> None:
    _, pane = many(900)
    found = fit(method, View(pane, PaneQuery(scope="class:3")))
    json.dumps(found, allow_nan=False)
    assert found["heldout_reason"] is None
    assert found["heldout"]["gain"]["brier"]["value"] > 0


def test_where_there_are_too_few_it_says_so() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(25), 15)
    pane = Pane(SPEC)
    pane.fill_batch(
        Batch.from_columns(
            {"probabilities": p, "labels": [3, 4] * 7 + [3], "ids": [f"i{i}" for i in range(15)]}
        ).batch
    )
    found = fit("isotonic", View(pane, PaneQuery(scope="class:3")))
    assert (found["heldout"], found["heldout_reason"]) == (None, "few_units")


def test_a_sample_without_a_hit_shows_no_gain() -> None:
    """The window has some, but none of the rows that are kept."""
    batch, pane = many(2000)
    pane = Pane(SPEC)
    pane.fill_batch(batch)
    kept = np.isin(batch.prediction_hash, pane.sample.batch().prediction_hash)
    labels = np.where(kept, 4, np.arange(2000) % 5)
    pane = Pane(SPEC)
    pane.fill_batch(
        Batch.from_columns(
            {"logits": batch.scores, "labels": labels, "ids": [f"i{i}" for i in range(2000)]}
        ).batch
    )
    found = fit("isotonic", View(pane, PaneQuery(scope="class:3")))
    assert found["parameters"] is not None
    assert (found["heldout"], found["heldout_reason"]) == (None, "one_class")
