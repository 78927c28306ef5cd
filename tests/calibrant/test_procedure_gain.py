"""The gain of a procedure that fits maps, cross-fitted by unit."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibrators import MAPS, Options, apply, fit
from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.calibrators.map_comparison import procedure_gain
from calibrant.calibrators.row_losses import row_losses
from calibrant.core.batch import Batch
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from tests.calibrant.map_rows import many_classes, pane_of

MOST = 1 << 18


def view_of(batch, **pane_query):
    return View(pane_of(batch, MOST), PaneQuery(**pane_query))


@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_it_is_the_mean_gain_of_fits_to_the_other_fifths(method):
    """Against fits made one by one."""
    batch = many_classes(600, 4)
    found = procedure_gain(None, method, Options(), view_of(batch))
    stored = pane_of(batch, MOST).sample.batch()
    rows = labelled_rows(stored, 0)
    unit = np.argsort(np.argsort(stored.unit_hash))
    gains = np.zeros(len(rows))
    for fold in range(5):
        others = stored.take(unit % 5 != fold)
        mine = np.flatnonzero(unit % 5 == fold)
        fitted = fit(method, view_of(others), Options(), evaluate=False)
        held = rows.take(mine)
        losses = row_losses(held, apply(fitted, stored.take(mine)))["nll"]
        gains[mine] = row_losses(held, held.probabilities)["nll"] - losses
    assert found["gain"]["nll"]["value"] == pytest.approx(gains.sum() / rows.weight.sum(), rel=1e-5)
    assert (found["evidence_of"], found["folds"], found["n_units"]) == ("procedure", 5, 600)
    assert found["beats"] and found["reason"] is None


@pytest.mark.parametrize("method", list(MAPS))
def test_every_map_can_be_tested(method):
    batch = many_classes(700, 3)
    scope = None if "full" in MAPS[method].scopes else "class:1"
    found = procedure_gain(None, method, Options(), view_of(batch, scope=scope))
    assert found["gain"]["nll"]["value"] is not None or found["gain"]["brier"]["value"] is not None
    current = fit("temperature", view_of(batch), evaluate=False)
    against = procedure_gain(current, method, Options(), view_of(batch, scope=scope))
    assert against["gain"]["brier"]["value"] < found["gain"]["brier"]["value"] + 1e-3


def test_calibrated_rows_seldom_show_a_gain():
    shown = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.ones(3), 200)
        labels = (p.cumsum(axis=1) > rng.random((200, 1))).argmax(axis=1)
        batch = Batch.from_columns({"probabilities": p, "labels": labels}).batch
        shown += procedure_gain(None, "temperature", Options(), view_of(batch))["beats"]
    assert shown <= 3  # at most half a run is expected; four or more have a chance below 2e-3


def test_reasons_are_named():
    few = many_classes(10, 3)
    assert procedure_gain(None, "temperature", Options(), view_of(few))["reason"] == "few_units"
    small = procedure_gain(None, "vector", Options(), view_of(many_classes(100, 3)))
    assert (small["reason"], small["beats"]) == ("few_rows", False) and small["detail"]
    unlabelled = Batch.from_columns({"probabilities": [[0.2, 0.3, 0.5]] * 30}).batch
    found = procedure_gain(None, "temperature", Options(), view_of(unlabelled))
    assert found["reason"] == "no_labels"
