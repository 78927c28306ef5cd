"""Answers read the parts that they name, and no others."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.metrics import METRICS, PaneQuery, View, accumulators_for, compute_metrics
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW
from calibrant_server.workers.queries.compute import KINDS
from calibrant_server.workers.queries.kind import Against, Inputs
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

EVER = Window(0, 1 << 32)


TASKS = ("binary", "multiclass", "segmentation")
# The parts of each filled pane, by its id.
PARTS: dict[int, dict[str, bytes]] = {}


@pytest.fixture(scope="module", params=TASKS)
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
    PARTS[id(filled)] = filled.parts()
    return filled


def inputs(pane: Pane) -> Inputs:
    config = ModelConfig("default", "m", pane.spec.task, pane.spec.n_classes)
    return Inputs(config, EVER, pane)


def part_and_all(pane: Pane, kind: str, **fields) -> tuple[dict, dict]:
    """What a kind computes from the accumulators that it declares, and from all."""
    declared = KINDS[kind]
    query = declared.query(**fields)
    wanted = declared.reads(query, compared=False)
    return declared.compute(query, inputs(read(pane, wanted))), declared.compute(
        query, inputs(pane)
    )


def read(pane: Pane, wanted) -> Pane:
    wanted = tuple({SAMPLE if name == SAMPLE_OF_FEW else name for name in wanted})
    parts = {name: data for name, data in PARTS[id(pane)].items() if name in wanted}
    return Pane.from_parts(pane.spec, parts, only=wanted)


# Each metric with one task, in turn; with the other tasks among the slow tests.
@pytest.mark.parametrize(("pane", "slug"), [
    pytest.param(task, slug, marks=[pytest.mark.slow] if (at + place) % 3 else [])
    for at, task in enumerate(TASKS) for place, slug in enumerate([*sorted(METRICS), "ece sample"])
], indirect=["pane"], scope="module")  # fmt: skip
def test_stability(pane, slug, monkeypatch):
    monkeypatch.setattr("calibrant.stability.curves.N_BOOTSTRAPS", 2)
    monkeypatch.setattr("calibrant.stability.row_curves._SLOW_ORDERS", 1)
    part, complete = part_and_all(
        pane, "stability", **dict(zip(("metric", "source"), slug.split(), strict=False))
    )
    assert part == complete


@pytest.mark.parametrize("fields", [{}, {"include": "sensitivity"}, {"case": "case-7"}])
def test_cases(pane, fields):
    part, complete = part_and_all(pane, "cases", **fields)
    assert part == complete


def test_a_status_is_that_of_the_metrics_and_the_temperature(pane):
    kind, config = KINDS["model_status"], inputs(pane).config
    query = kind.query().resolved(config)
    part, found = part_and_all(pane, "model_status", **query.to_dict())
    assert part == found
    metrics = KINDS["metrics"].query(metrics="ece").resolved(config)
    of_metrics = KINDS["metrics"].compute(metrics, inputs(pane))
    fitted = KINDS["temperature"].compute(KINDS["temperature"].query(), inputs(pane))
    assert found == {
        "error": of_metrics["metrics"]["ece"],
        "label_coverage": of_metrics["label_coverage"]["coverage"],
        "temperature": fitted["temperature"],
    }
    assert found["error"]["value"] > 0 and found["temperature"] > 0


COMPARED = {
    "cases": {},
    "confidence_histogram": {"bins": 60},
    "disagreement": {},
    "label_distribution": {},
    "metrics": {},
    "reliability": {},
    "roc": {"scope": "top_label"},
    "stability": {},
    "temperature": {"include": "curve"},
    "temperature_surface": {"points": 3},
    "uncertainty": {},
    "calibration_map": {},
}


@pytest.mark.parametrize(
    "kind",
    [
        name
        for name, kind in KINDS.items()
        # What reads records is compared in tests/end_to_end/test_raters.py.
        if kind.compare and kind.query.needs.panes == "merged" and not kind.query.needs.records
    ],
)
def test_a_comparison_reads_what_it_declares(pane, kind, monkeypatch):
    monkeypatch.setattr("calibrant.stability.curves.N_BOOTSTRAPS", 2)
    if kind == "temperature_surface" and pane.spec.n_classes != 2:
        pytest.skip("a surface is of two classes")
    declared = KINDS[kind]
    query = declared.query(**COMPARED[kind])
    part = read(pane, declared.reads(query, compared=True))
    against = Against("baseline", "b")
    found = [declared.compare(query, inputs(each), inputs(each), against) for each in (part, pane)]
    assert found[0] == found[1]
    assert found[0]["against"]["baseline"] == "b"
    if kind == "cases":
        assert found[0]["comparison"]["ace"]["difference"] == 0.0


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("roc", {"scope": "top_label"}),
        ("roc", {"scope": "class:1", "points": 20}),
        ("uncertainty", {}),
        ("label_distribution", {}),
        ("confidence_histogram", {"bins": 60}),
        ("confidence_histogram", {"bins": 60, "case": "case-7"}),
        ("metrics", {"metrics": "ece,kde_ece(bandwidth=0.05),lp_ece(order=3)"}),
    ],
)
def test_other_kinds(pane, kind, fields):
    part, complete = part_and_all(pane, kind, **fields)
    assert part == complete
    assert not part.get("reason")


@pytest.mark.parametrize("scope", ["top_label", "positive", "class:1", "all"])
def test_every_metric_reads_what_its_scope_needs(pane, scope, monkeypatch):
    if scope == "positive" and pane.spec.n_classes != 2:
        return
    monkeypatch.setattr("calibrant.inference.replication.N_RESAMPLES", 20)
    pane_query = PaneQuery(scope=scope)
    slugs_by_needs = defaultdict(list)
    for slug in METRICS:
        slugs_by_needs[accumulators_for([slug], scope)].append(slug)
    for wanted, slugs in slugs_by_needs.items():
        part = View(read(pane, wanted), pane_query)
        assert compute_metrics(part, slugs) == compute_metrics(View(pane, pane_query), slugs)


CELLS = {"top_label", "positive", "classes", "all_labels"}


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({}, {"top_label"}),
        ({"scope": "class:2"}, {"classes"}),
        ({"scope": "all"}, {"classes", "all_labels"}),
        ({"metrics": "ece,ece(scope=all)"}, {"top_label", "classes", "all_labels"}),
        ({"metrics": "brier"}, {"top_label", "positive"}),
        ({"tolerance": 0.1, "metrics": "brier"}, {"top_label", "positive"}),
    ],
)
def test_cells_of_other_scopes_are_not_read(fields, cells):
    kind, config = KINDS["metrics"], ModelConfig("default", "m", "multiclass", 3)
    query = kind.query(**({"metrics": "ece"} | fields)).resolved(config)
    assert CELLS & set(kind.reads(query, compared=False)) == cells


@pytest.mark.parametrize("fields", [{"points": 3}, {"points": 3, "case": "case-7"}])
def test_losses_over_two_temperatures(pane, fields):
    kind = KINDS["temperature_surface"]
    if pane.spec.n_classes != 2:
        with pytest.raises(CalibrationInputError):
            kind.query(**fields).resolved(inputs(pane).config)
        return
    part, complete = part_and_all(pane, "temperature_surface", **fields)
    assert part == complete


def test_many_metrics_with_options_do_not_hold_up_quick_queries():
    kind = KINDS["metrics"]
    few, many = (
        kind.query(metrics=",".join(f"kde_ece(bandwidth=0.{n + 1})" for n in range(count)))
        for count in (12, 13)
    )
    assert (kind.is_slow(few), kind.is_slow(many)) == (False, True)
    assert not kind.is_slow(kind.query(metrics=",".join(METRICS)))
