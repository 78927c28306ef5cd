"""Entries that kill their reader: exactly those are parked unread, after readers died twice with such an entry alone."""

from __future__ import annotations

import random

import pytest

from calibrant_server.workers.ingest.parked import all_letters
from calibrant_server.workers.store import leases
from calibrant_server.workers.store.commit import Cursor
from tests.waiting import PATIENCE_S, eventually
from tests.workers.driving import MODEL, delivery, totals
from tests.workers.ledger import LedgerHistogram, pane_of
from tests.workers.processes import WorkerProcess

# Long enough for innocent entries on a busy machine, short enough to wait for.
STUCK = [(leases, "STUCK_S", 2.0)]
# The first two deaths only show that some entry of a run kills; then each poison kills twice alone.
MAX_DEATHS = 3


def started(loop):
    """Start the loop as a new worker would that has found entries."""
    loop._fencing.reload()
    loop._fencing.take_over()
    loop._counted = True
    return loop


def cursor(bench, loop):
    return Cursor.from_hash(bench.client.hgetall(loop.keys.cursor))


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


def test_an_entry_is_parked_unread_after_its_reader_died_twice_with_it_alone(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(*(delivery(f"b{i}", [i]) for i in range(1, 4)))
    for n_alone in (0, 0, 1):
        assert started(loop)._fencing.cursor.ends_alone == n_alone
    assert not loop._park_next()
    assert started(loop)._fencing.cursor.ends_alone == 2
    loop.step()
    [letter] = all_letters(bench.store)
    assert (letter.batch_id, letter.state) == ("b1", "parked") and "died 2 times" in letter.why
    assert cursor(bench, loop).ends_alone == 0
    for _ in range(3):
        loop.step()
    assert bench.pane().numbers == pane_of([2, 3]).numbers


def test_each_entry_has_its_own_count(bench):
    """A commit of the first one resets it, and so does a worker that gives the partition back."""
    bench.put_model()
    loop = bench.loop()
    bench.deliver(*(delivery(f"b{i}", [i]) for i in range(1, 3)))
    for _ in range(3):
        started(loop)
    loop.step()
    assert bench.pane().numbers == pane_of([1]).numbers
    for n_alone in (1, 2):
        assert started(loop)._fencing.cursor.ends_alone == n_alone
    loop.close()
    assert cursor(bench, loop).ends_alone == 0
    started(loop).step()
    assert bench.pane().numbers == pane_of([1, 2]).numbers and not list(all_letters(bench.store))


@pytest.mark.one_server
@pytest.mark.parametrize(("trick", "n_bad"), [("kill", 2), ("loop", 1)])
def test_exactly_the_poison_is_parked(bench, trick, n_bad):
    """Worker processes die of it; innocent neighbours are merged."""
    bench.put_model()
    chance = random.Random(11)
    bad = set(chance.sample(range(60), n_bad))
    bench.deliver(*(delivery(f"b{i}", [i], trick=trick if i in bad else "") for i in range(60)))
    with WorkerProcess(bench.settings, constants=STUCK) as worker:
        deaths = worker.keep_alive_until(
            lambda: bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 0
        )
    assert bench.pane().numbers == pane_of(set(range(60)) - bad).numbers
    letters = list(all_letters(bench.store))
    assert {letter.batch_id for letter in letters} == {f"b{i}" for i in bad}
    assert all(letter.state == "parked" and "died 2 times" in letter.why for letter in letters)
    assert {bench.merged(f"b{i}", seconds=0).status for i in bad} == {"parked"}
    assert 1 <= deaths <= MAX_DEATHS * n_bad


@pytest.mark.one_server
def test_a_stuck_thread_is_replaced_where_the_process_must_live(bench, monkeypatch):
    """In the service's own process the loop cannot be ended, but it is overtaken."""
    for constant in STUCK:
        monkeypatch.setattr(*constant)
    bench.put_model()
    bench.engine()
    bench.deliver(delivery("b1", [1], trick="loop"), delivery("b2", [2]))
    assert bench.merged("b2").status == "merged"
    eventually(lambda: bench.merged("b1", seconds=0).status == "parked")
    # The thread that is stuck for ever does not hold up the end.
    assert bench.engines.pop().stop(PATIENCE_S)
