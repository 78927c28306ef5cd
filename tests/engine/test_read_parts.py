"""Answers about stability and cases read the parts that they name, and no others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.metrics import METRICS
from workers.answers import cases, stability

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
    filled.fill(Batch.from_columns(columns, task=request.param).batch)
    return filled


def read(pane: Pane, wanted) -> Pane:
    wanted = tuple(sorted(set(wanted)))
    parts = {name: data for name, data in pane.parts().items() if name in wanted}
    return Pane.from_parts(pane.spec, parts, only=wanted)


@pytest.mark.parametrize("slug", sorted(METRICS))
def test_stability(pane, slug):
    params = {"metric": slug}
    part = read(pane, stability.parts(params))
    assert stability.answer(part, CONFIG, params, 1) == stability.answer(pane, CONFIG, params, 1)


def test_cases(pane):
    part = read(pane, cases.parts({}))
    assert cases.answer(part, CONFIG, {}, 1) == cases.answer(pane, CONFIG, {}, 1)
