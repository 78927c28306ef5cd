"""Moves of old days to files: which days are moved, in how many files, and the same results to the bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.capacity import COLD_DAY_BYTES, VERSION_BYTES
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.transfer import export_lines, stored_panes
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.connection import Store
from tests.workers.cold_days.moving import (
    DAY_S,
    EVER,
    FIRST,
    HORIZON,
    N_DAYS,
    batches,
    cold_days,
    content,
    files,
    filled,
    hot,
    move,
    named,
)
from tests.workers.driving import MODEL
from tests.workers.test_tails import drained, predictions

pytestmark = pytest.mark.one_server


def lines(bench, model=HORIZON):
    """An export, and the table of panes, of the inbox."""

    async def read():
        exported = [
            each async for each in export_lines(bench.inbox.client, bench.inbox.keys, model, True)
        ]
        table = [each async for each in stored_panes(bench.inbox.client, bench.inbox.keys, model)]
        return exported, table

    return bench.run(read())


def test_results_are_the_same_to_the_bit_and_the_store_is_empty(bench, loop, root):
    before, exported = content(bench), lines(bench)
    assert len(hot(bench)) == N_DAYS * (6 + 2)
    move(loop)
    assert hot(bench) == []
    assert sorted(cold_days(bench)) == [FIRST + DAY_S * day for day in range(N_DAYS)]
    assert files(root) == named(bench) and len(named(bench)) == N_DAYS * 3
    assert content(bench) == before
    assert lines(bench) == exported
    # Nothing is left to do.
    token = bench.cursor(HORIZON)["tok"]
    move(loop)
    assert bench.cursor(HORIZON)["tok"] == token


def test_a_model_without_days_of_hours_is_moved_with_its_rows(bench, root):
    """Panes of a day or a week have rows until they are moved; later rows are sums at once."""
    for number, pane_s in enumerate((DAY_S, 7 * DAY_S)):
        model = replace(MODEL, model=f"long{number}", pane_s=pane_s)
        bench.numerics = Numerics()
        bench.put_model(model)
        bench.deliver(*batches(model))
        loop = bench.loop(model=model)
        loop._housekeeping.due_at = float("inf")
        drained(bench, loop)
        assert any(b":t:" in name for name in hot(bench, model))
        panes = WindowPanes(Store(bench.settings), Numerics())
        before = panes.merged(model, "", EVER, None)
        move(loop, model)
        assert hot(bench, model) == []
        after = WindowPanes(Store(bench.settings), Numerics()).merged(model, "", EVER, None)
        assert after.version == before.version
        assert (
            after.merged.counts == before.merged.counts
            and after.merged.digest() == before.merged.digest()
        )
        bench.deliver(
            predictions(
                model,
                "late",
                {"probabilities": [[0.2, 0.3, 0.5]], "event_times": ["2026-01-02T05:00:00Z"]},
            )
        )
        drained(bench, loop)
        assert not any(b":t:" in name for name in hot(bench, model))
        later = WindowPanes(Store(bench.settings), Numerics()).merged(model, "", EVER, None)
        assert later.merged.counts["n_predictions"] == before.merged.counts["n_predictions"] + 1


def test_a_day_waits_for_its_age_its_seal_and_its_merge(bench, settings):
    bench.settings = settings.replace(cold_after_s=1 << 30)
    loop = filled(bench, HORIZON)[0]
    move(loop)
    assert cold_days(bench) == {}
    bench.settings = settings
    bench.client.hset(loop.keys.marks(HORIZON.key, HORIZON.generation), "sealed_to", FIRST + DAY_S)
    bench.client.hset(loop.keys.marks(HORIZON.key, HORIZON.generation), "d|site:B", FIRST)
    move(bench.loop(model=HORIZON))
    assert cold_days(bench) == {}
    bench.client.hset(loop.keys.marks(HORIZON.key, HORIZON.generation), "d|site:B", FIRST + DAY_S)
    move(bench.loop(model=HORIZON))
    assert list(cold_days(bench)) == [FIRST]


def test_the_store_has_as_little_of_a_cold_day_as_the_capacity_page_states(bench, loop):
    move(loop)
    names = bench.client.memory_usage(loop.keys.cold_days(HORIZON.key, HORIZON.generation))
    assert names / N_DAYS < COLD_DAY_BYTES
    versions = bench.client.memory_usage(loop.keys.versions(HORIZON.key, HORIZON.generation, ""))
    assert versions / (N_DAYS + 2) < VERSION_BYTES  # of its panes, one of today and the last change
