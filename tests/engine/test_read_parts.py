"""Answers read the parts that they name, and no others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.metrics import METRICS
from calibrant_server.workers.queries.kinds import (
    cases,
    cases_difference,
    confidence_histogram,
    label_distribution,
    roc,
    stability,
    temperature_surface,
    uncertainty,
)

CONFIG = SimpleNamespace(classes=None)


@pytest.fixture(scope="module", params=["binary", "multiclass", "segmentation"])
def pane(request) -> Pane:
    rng = np.random.default_rng(5)
    n_classes = 2 if request.param == "binary" else 3
    p = rng.dirichlet(np.ones(n_classes), 200)
    columns = {
        "probabilities": p,
        "label_counts": np.stack([rng.multinomial(1 + i % 3, row) for i, row in enumerate(p)]),
        "cases": [f"case-{i // 5}" for i in range(200)],
    }
    filled = Pane(PaneSpec(request.param, n_classes))
    filled.fill_batch(Batch.from_columns(columns, task=request.param).batch)
    return filled


def read(pane: Pane, wanted) -> Pane:
    wanted = tuple(sorted(set(wanted)))
    parts = {name: data for name, data in pane.parts().items() if name in wanted}
    return Pane.from_parts(pane.spec, parts, only=wanted)


@pytest.mark.parametrize("slug", [*sorted(METRICS), "ece sample"])
def test_stability(pane, slug, monkeypatch):
    monkeypatch.setattr("calibrant.stability.report.N_BOOTSTRAPS", 2)
    monkeypatch.setattr("calibrant.stability.row_curves._SLOW_ORDERS", 1)
    params = dict(zip(("metric", "source"), slug.split(), strict=False))
    part = read(pane, stability.parts(params))
    assert stability.answer(part, CONFIG, params, 1) == stability.answer(pane, CONFIG, params, 1)


def test_cases(pane):
    part = read(pane, cases.parts({}))
    assert cases.answer(part, CONFIG, {}, 1) == cases.answer(pane, CONFIG, {}, 1)


@pytest.mark.parametrize("params", [{"sensitivity": True}, {"case": "case-7"}])
def test_more_of_cases(pane, params):
    part = read(pane, cases.parts(params))
    assert cases.answer(part, CONFIG, params, 1) == cases.answer(pane, CONFIG, params, 1)


def test_cases_against_another_models(pane):
    params = {"against_model": "other"}
    part = read(pane, cases_difference.parts(params))
    told = [cases_difference.answer((each, each), CONFIG, params, 1) for each in (part, pane)]
    assert told[0] == told[1]
    assert told[0]["comparison"]["ace"]["difference"] == 0.0


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (roc, {"scope": "top_label"}),
        (roc, {"scope": "class:1", "points": 20}),
        (uncertainty, {}),
        (label_distribution, {}),
        (confidence_histogram, {"bins": 60}),
        (confidence_histogram, {"bins": 60, "case": "case-7"}),
    ],
)
def test_other_answers(pane, kind, params):
    part = read(pane, kind.parts(params))
    told = kind.answer(pane, CONFIG, params, 1)
    assert kind.answer(part, CONFIG, params, 1) == told
    assert not told.get("reason")


@pytest.mark.parametrize(
    "params", [{"bins": 15, "points": 3}, {"bins": 15, "points": 3, "case": "case-7"}]
)
def test_losses_over_two_temperatures(pane, params):
    if pane.spec.n_classes != 2:
        with pytest.raises(CalibrationInputError):
            temperature_surface.answer(pane, CONFIG, params, 1)
        return
    part = read(pane, temperature_surface.parts(params))
    assert temperature_surface.answer(part, CONFIG, params, 1) == temperature_surface.answer(
        pane, CONFIG, params, 1
    )
