"""Frozen maps of an export: each is tried before it is kept, and what no answer could use is rejected."""

import json

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import MAPS, fit
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.lifecycle.transfer_maps import check_map, check_map_line
from calibrant_server.workers.store.model_config import ModelConfig

CONFIG = ModelConfig(tenant="t", model="m", task="multiclass", n_classes=3)
ABOUT = {
    "created_at": "2026-01-01T00:00:00Z",
    "created_by": "k",
    "window": {},
    "state_version": "a",
}
MAP = {
    "method": "temperature",
    "scope": "full",
    "class": None,
    "parameters": {"temperature": 2.0},
} | ABOUT
RECORD = {
    "version": 1,
    "promoted_at": "2026-01-01T00:00:00Z",
    "promoted_by": "k",
    "reason": "r",
    "override": False,
}
GOOD = {
    "n": "3",
    "p": "12",
    "f0a1b": "1",
    "v1": json.dumps(MAP),
    "s1": json.dumps(MAP),
    "h12": json.dumps(RECORD),
}


@pytest.fixture(scope="module")
def pane():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), 400)
    labels = (p.cumsum(axis=1) > rng.random(400)[:, None]).argmax(axis=1)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(
        Batch.from_columns({"probabilities": p, "labels": labels}, task="multiclass").batch
    )
    return pane


@pytest.mark.parametrize("method", MAPS)
def test_every_map_that_is_fitted_can_be_kept(pane, method):
    for scope in MAPS[method].scopes:
        if scope != "positive":
            found = fit(
                method, View(pane, PaneQuery(scope="class:1" if scope == "class" else "top_label"))
            )
            check_map(json.loads(json.dumps(found, default=float)), CONFIG)


@pytest.mark.parametrize("field", GOOD)
def test_good_lines(field):
    check_map_line(field, GOOD[field], CONFIG)


BAD = [
    *((field, text) for field in ("v1", "s1", "h12") for text in ("x", "[]", "null", "1", "{}", "[" * 100_000)),
    *(("v1", json.dumps(MAP | changed)) for changed in (
        {"parameters": None}, {"parameters": {}}, {"parameters": {"temperature": "x"}}, {"parameters": {"temperature": 0.0}},
        {"method": "none"}, {"method": "vector"}, {"scope": "half"}, {"created_at": 7}, {"window": []},
    )),
    *(("h12", json.dumps(RECORD | changed)) for changed in ({"version": "1"}, {"version": True}, {"override": 1})),
    *((field, text) for field in ("n", "p", "f0a1b") for text in ("x", "", "-1", "1.5", "1" * 400, "{}")),
    *((field, GOOD["v1"]) for field in ("v0", "v", "v1x", "v" + "9" * 400)),
    *[("n", "501"), ("x", "1"), ("", "1")],
]  # fmt: skip


@pytest.mark.parametrize(("field", "text"), BAD)
def test_lines_that_no_answer_could_use(field, text):
    with pytest.raises(EntryError, match="map"):
        check_map_line(field, text, CONFIG)
