"""Memory of a query: what it merges is stored sparsely, and two sides of a window are few merges."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.metrics import METRICS, PaneQuery, View, compute_metrics
from calibrant.results.drift import CURRENT_S
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries.kinds import drift
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.windows import DatedPane, Window
from tests.workers.driving import MODEL

EVER = Window(0, 1 << 32)
DAY_S = 86_400
START = datetime(2026, 1, 1, tzinfo=UTC)
N_DAYS = 12


@pytest.fixture
def loop(bench):
    bench.numerics = Numerics()
    bench.put_model()
    return bench.loop()


@pytest.fixture
def panes(bench, loop) -> WindowPanes:
    """Two hours of each day, a patient in each and one in all."""
    rng = np.random.default_rng(3)
    for day in range(N_DAYS):
        times = [START + timedelta(days=day, hours=9 + i % 2) for i in range(8)]
        columns = {
            "event_times": [each.isoformat() for each in times],
            "probabilities": rng.dirichlet(np.ones(3), 8).tolist(),
            "labels": rng.integers(0, 3, 8).tolist(),
            "units": [f"{day}-{i % 2}" if i else "always" for i in range(8)],
        }
        batch = Batch.from_columns(columns).batch
        digest = f"{day:016d}".encode()
        bench.deliver(IngestBatch.of(MODEL, f"b{day}", PREDICTIONS, batch.pack(), digest, batch.n))
        drain(loop)
    return WindowPanes(bench.store, bench.numerics)


def drain(loop) -> None:
    while loop.step():
        pass


def labelled(panes: list[DatedPane]) -> list[int]:
    return [each.pane.counts["n_labelled"] for each in panes]


@pytest.mark.one_server
def test_the_sides_of_a_window_are_few_merges_with_the_content_of_its_panes(panes) -> None:
    each = panes.each(MODEL, "", EVER, None).panes
    sides = panes.sides(MODEL, "", EVER, None, CURRENT_S).panes
    assert len(each) == 2 * N_DAYS and 2 <= len(sides) < N_DAYS
    cut = drift.start_of_current(each)
    assert cut == drift.start_of_current(sides)
    for is_current in (True, False):
        expected, found = (
            [one for one in some if (one.start_s >= cut) == is_current] for some in (each, sides)
        )
        spans = [(min(one.start_s for one in some), max(one.start_s + one.length_s for one in some)) for some in (found, expected)]  # fmt: skip
        assert spans[0] == spans[1]
        assert sum(labelled(found)) == sum(labelled(expected)) > 0
        digests = [sum((one.pane for one in some), 0).digest() for some in (found, expected)]
        assert digests[0] == digests[1]


@pytest.mark.one_server
def test_sides_are_those_of_the_window_as_it_is_now(panes, bench, loop) -> None:
    """A later pane moves the cut; the merges of former sides are not used for it."""
    before = panes.sides(MODEL, "", EVER, None, CURRENT_S).panes
    batch = Batch.from_columns(
        {
            "event_times": [(START + timedelta(days=N_DAYS + 2)).isoformat()],
            "probabilities": [[0.2, 0.3, 0.5]],
            "labels": [1],
        }
    ).batch
    bench.deliver(IngestBatch.of(MODEL, "later", PREDICTIONS, batch.pack(), b"x" * 16, 1))
    drain(loop)
    after = panes.sides(MODEL, "", EVER, None, CURRENT_S).panes
    cuts = [drift.start_of_current(some) for some in (before, after)]
    assert cuts[1] > cuts[0]
    assert not [one for one in after if one.start_s < cuts[1] < one.start_s + one.length_s]
    assert sum(labelled(after)) == sum(labelled(before)) + 1


@pytest.mark.one_server
@pytest.mark.parametrize("days", [1, 2])
def test_the_parts_of_a_series_are_stored_sparsely(panes, days) -> None:
    """A series has many: dense, each would have the size of a full table."""
    parts = panes.parts(MODEL, "", EVER, ("counts", "classes"), days * DAY_S, lambda n: None).panes
    assert len(parts) in (N_DAYS // days, N_DAYS // days + 1)
    for each in parts:
        block = each.pane["classes"].blocks["cells"]
        assert not block.is_dense
        assert each.pane.memory_bytes < 0.1 * 8 * block.size * (block.n_counts + block.n_sums)


def test_every_metric_of_a_window_takes_little_memory() -> None:
    """All metrics of 14,400 predictions: matrices of pairs and draws are made piece by piece."""
    rng, n = np.random.default_rng(0), 14_400
    units = [f"u{i % 50}" for i in range(n)]
    score = rng.random(n).round(3)
    spread = Pane.fill(score, rng.integers(0, 2, n))
    grouped = Pane.fill(score, rng.integers(0, 2, n), units=units)
    for pane in (spread, grouped):
        tracemalloc.start()
        try:
            found = compute_metrics(View(pane.copy(), PaneQuery()), METRICS)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert found.keys() == METRICS.keys()
        assert peak < 30e6
