"""Panes that grow: repeated reads find what a first read finds."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Pane
from calibrant_server.workers.lifecycle.compaction import TailFolding
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.segments import pieces
from tests.calibrant.panes import assert_same
from tests.workers.driving import MODEL
from tests.workers.test_tails import (
    EVER,
    SLICES,
    START,
    drained,
    loop_of_rows,
    predictions,
    steps,
)

pytestmark = pytest.mark.one_server
WANTED = ("classes", "counts", "replicates", "temperature", "top_label", "unit_sample")


@pytest.fixture
def loop(bench, monkeypatch):
    # Pieces stay apart as those of larger tails do.
    monkeypatch.setattr(pieces, "SMALL_PIECE_BYTES", 0)
    return loop_of_rows(bench)


def rows(batch_id, n, hour=0, seed=0):
    rng = np.random.default_rng(seed)
    columns = {
        "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
        "labels": rng.integers(0, 3, n).tolist(),
        "event_times": [f"2026-01-01T0{hour}:10:00Z"] * n,
        "slices": {"site": ["AB"[i % 2] for i in range(n)]},
    }
    return predictions(MODEL, batch_id, columns)


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_repeated_reads_find_what_a_first_read_finds(bench, loop, seed):
    """Units over several batches, labels by id, corrections, deletions, and rows that become sums; counts to the bit, sums to 1e-12."""
    panes = WindowPanes(bench.store, bench.numerics)
    folding = TailFolding(bench.store, loop.keys, loop._fencing, bench.numerics)
    bench.deliver(rows("first", 40))
    for number, step in enumerate(steps(np.random.default_rng(seed))):
        bench.deliver(step(MODEL))
        if number == 30:
            folding.fold(MODEL, [START], lambda: None)
        drained(bench, loop)
        slice_ = SLICES[number % len(SLICES)]
        for each in ("", slice_):
            found = panes.merged(MODEL, each, EVER, WANTED).merged
        fresh = WindowPanes(bench.store, bench.numerics)
        expected = fresh.merged(MODEL, slice_, EVER, WANTED).merged
        assert found.counts == expected.counts
        both = (Pane(each.spec, WANTED).merge_all([each]) for each in (found, expected))
        assert_same(*both, tolerance=1e-12)
        for divided in (
            panes.each(MODEL, slice_, EVER, WANTED),
            panes.sides(MODEL, slice_, EVER, WANTED, 3600),
            panes.parts(MODEL, slice_, EVER, WANTED, 3600, lambda n: None),
        ):
            n_labelled = sum(each.pane.counts["n_labelled"] for each in divided.panes)
            assert n_labelled == found.counts["n_labelled"]


def test_a_result_keeps_its_pane_while_others_are_read(bench, loop):
    """A merge that was returned does not change when later queries read more rows."""
    panes = WindowPanes(bench.store, bench.numerics)
    bench.deliver(rows("many", 100))
    seen = []
    for i in range(4):
        bench.deliver(rows(f"b{i}", 1, seed=i + 1))
        drained(bench, loop)
        merged = panes.merged(MODEL, "", EVER, WANTED).merged
        seen.append((merged, merged.counts["n_labelled"]))
    assert [merged.counts["n_labelled"] for merged, _ in seen] == [101, 102, 103, 104]
