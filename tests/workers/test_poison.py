"""Entries that kill their reader: exactly those are dead-lettered, after a child has died of each twice."""

from __future__ import annotations

import random

import pytest

from calibrant_server.workers.ingest import suspected_entries
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestEntry
from calibrant_server.workers.ingest.sandbox import DisposableReducer, EntryKills, EntryRejected
from calibrant_server.workers.store import leases
from calibrant_server.workers.store.keys import PaneKey
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, delivery, totals
from tests.workers.ledger import LedgerBatch, LedgerHistogram, ledger_ground, pane_of
from tests.workers.processes import WorkerProcess

MEMORY = 1 << 30
# Long enough for innocent entries on a busy machine, short enough to wait for.
STUCK = [(leases, "STUCK_S", 2.0), (suspected_entries, "CHILD_TIMEOUT_S", 2.0)]


@pytest.fixture
def reducer():
    reducer = DisposableReducer(ledger_ground(), timeout_s=PATIENCE_S, memory_bytes=MEMORY)
    yield reducer
    reducer.close()


def entry_of(numbers, trick=""):
    payload = LedgerBatch(numbers, trick=trick).pack()
    return IngestEntry(
        model=MODEL.key,
        generation=MODEL.generation,
        batch_id="b",
        kind=PREDICTIONS,
        digest=b"",
        received_ms=0,
        payload=payload,
        id="1-0",
    )


def test_a_child_reduces_like_the_worker(reducer):
    reduction, n = reducer.reduce(entry_of([1, 2]), MODEL)
    delta = reduction.deltas[PaneKey(MODEL.key, MODEL.generation, "", 0)]
    assert delta.numbers == pane_of([1, 2]).numbers and n == 2


@pytest.mark.parametrize(
    ("trick", "why"), [("kill", "signal 9"), ("loop", "longer than"), ("hog", "memory")]
)
def test_a_child_dies_in_the_workers_place(reducer, trick, why):
    if trick == "loop":
        reducer._timeout_s = 0.7
    with pytest.raises(EntryKills, match=why):
        reducer.reduce(entry_of([1], trick), MODEL)
    reducer._timeout_s = PATIENCE_S
    assert reducer.reduce(entry_of([3]), MODEL)[1] == 1


def test_an_ordinary_error_is_reported_as_such(reducer):
    with pytest.raises(EntryRejected, match="cannot be filled"):
        reducer.reduce(entry_of([1], "raise"), MODEL)
    assert reducer.reduce(entry_of([3]), MODEL)[1] == 1


def test_running_totals_pass_through_the_danger_zone(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(totals("b1", LedgerHistogram(4, 40, event_time=0), sequence=1))
    bench.deliver(totals("b2", LedgerHistogram(6, 70, event_time=0), sequence=2))
    bench.client.hset(loop.keys.cursor, "att", 5)
    loop._counted = False
    for _ in range(3):
        loop.step()
    assert bench.pane("", 0).numbers[:2] == (6, 70)
    loop._suspected._child.close()


@pytest.mark.one_server
@pytest.mark.parametrize(("trick", "n_bad"), [("kill", 2), ("loop", 1)])
def test_exactly_the_poison_is_set_aside(bench, trick, n_bad):
    """Worker processes die of it, at most twice for each; innocent neighbours are merged."""
    bench.put_model()
    chance = random.Random(11)
    bad = set(chance.sample(range(60), n_bad))
    bench.deliver(*(delivery(f"b{i}", [i], trick=trick if i in bad else "") for i in range(60)))
    with WorkerProcess(bench.settings, constants=STUCK) as worker:
        deaths = worker.keep_alive_until(
            lambda: bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 0
        )
    assert bench.pane().numbers == pane_of(set(range(60)) - bad).numbers
    whys = [letter[b"why"].decode() for letter in bench.dead_letters()]
    assert len(whys) == n_bad and all("died twice" in why for why in whys)
    assert {bench.merged(f"b{i}").status for i in bad} == {"dead_lettered"}
    assert 1 <= deaths <= 2 * n_bad


@pytest.mark.one_server
def test_a_stuck_thread_is_replaced_where_the_process_must_live(bench, monkeypatch):
    """In the door's own process the loop cannot be ended, but it is overtaken."""
    for constant in STUCK:
        monkeypatch.setattr(*constant)
    bench.put_model()
    bench.engine()
    bench.deliver(delivery("b1", [1], trick="loop"), delivery("b2", [2]))
    assert bench.merged("b2").status == "merged"
    assert bench.merged("b1").status == "dead_lettered"
    # The thread that is stuck for ever does not hold up the end.
    assert bench.engines.pop().stop(PATIENCE_S)
