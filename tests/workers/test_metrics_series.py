"""Series of metrics: one result per part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant_server.workers.queries.kind import Against, Inputs
from calibrant_server.workers.queries.kinds import metrics_series
from calibrant_server.workers.queries.kinds.metrics_series import (
    METRICS,
    MetricsSeriesQuery,
    compare,
    compute,
)
from calibrant_server.workers.store.lru_cache import LruCache
from calibrant_server.workers.store.windows import DatedPane, Window
from tests.workers.driving import MODEL

HOUR_S = 3600


def inputs_of(n_hours):
    """So many hourly panes, all alike."""
    rng = np.random.default_rng(1)
    columns = {
        "probabilities": rng.dirichlet(np.ones(3), 20),
        "labels": rng.integers(0, 3, 20).tolist(),
    }
    pane = Pane(MODEL.spec())
    pane.fill_batch(Batch.from_columns(columns, task="multiclass").batch)
    panes = [DatedPane(hour * HOUR_S, HOUR_S, pane) for hour in range(n_hours)]
    return Inputs(MODEL, Window(0, n_hours * HOUR_S), panes=panes)


def series(n_hours, every_s=HOUR_S, listed="accuracy,brier"):
    return compute(MetricsSeriesQuery(metrics=listed, every_s=every_s), inputs_of(n_hours))


@pytest.mark.parametrize(("every_s", "n_parts"), [(HOUR_S, 48), (24 * HOUR_S, 2)])
def test_each_part_has_its_window_and_metrics(every_s, n_parts):
    found = series(48, every_s)["series"]
    assert len(found) == n_parts
    assert {each["n_predictions"] for each in found} == {20 * 48 // n_parts}
    assert all(each["metrics"].keys() == {"accuracy", "brier"} for each in found)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The parts that are computed, by their numbers of predictions."""
    monkeypatch.setattr(metrics_series, "_known", LruCache(1 << 20, len))
    computed: list[int] = []
    of_part = METRICS.compute

    def noted(query: Any, part: Inputs) -> Any:
        computed.append(part.pane.counts["n_predictions"])
        return of_part(query, part)

    monkeypatch.setattr(metrics_series, "METRICS", replace(METRICS, compute=noted))
    return computed


def with_states(inputs: Inputs, changed: int | None = None, model: str = "m") -> Inputs:
    """Name the state of each pane; that of one has changed."""
    panes = [
        each._replace(state=f"{model}|{i}|{'new' if i == changed else 'old'}".encode())
        for i, each in enumerate(inputs.panes)
    ]
    return replace(inputs, panes=panes)


def test_parts_that_were_computed_are_not_computed_again(known: list[int]) -> None:
    query = MetricsSeriesQuery(metrics="ece,brier", every_s=HOUR_S)
    plain = compute(query, inputs_of(5))
    assert len(known) == 5, "without states everything is computed"
    assert compute(query, with_states(inputs_of(5))) == plain and len(known) == 10
    assert compute(query, with_states(inputs_of(5))) == plain and len(known) == 10
    assert compute(query, with_states(inputs_of(5), changed=2)) == plain and len(known) == 11
    for other in (
        query.model_copy(update={"bins": 10}),
        query.model_copy(update={"tolerance": 0.1}),
    ):
        before = len(known)
        compute(other, with_states(inputs_of(5)))
        assert len(known) == before + 5
    # What can be detected depends on the length of the window.
    longer = replace(with_states(inputs_of(5)), window=Window(0, 50 * HOUR_S))
    before = len(known)
    compute(query, longer)
    assert len(known) == before + 5


def test_a_comparison_computes_only_the_parts_that_changed(known: list[int]) -> None:
    query = MetricsSeriesQuery(metrics="ece", every_s=HOUR_S)
    mine, other = inputs_of(3), inputs_of(3)
    for against in (Against("model", "other"), Against("window", "PT3H")):
        plain = compare(query, mine, other, against)
        for changed in (None, None, 1):
            theirs = with_states(other, changed, "o")
            assert compare(query, with_states(mine), theirs, against) == plain
