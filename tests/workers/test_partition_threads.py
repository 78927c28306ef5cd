"""A few threads serve many partitions: entries of each are merged, errors of one delay no other, leases are returned."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from calibrant_server.workers.ingest.partition_loop import PartitionLoop, Turn
from calibrant_server.workers.ingest.partition_threads import THREADS, PartitionThreads
from calibrant_server.workers.store import stream_watch
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.stream_watch import StreamWatch
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery, eventually

N = 48


@pytest.fixture
def many(settings):
    """A store of many partitions."""
    with Bench(settings.replace(partitions=N)) as bench:
        yield bench


def models_of(bench, n):
    """Models on n different partitions."""
    found = {}
    for i in range(10_000):
        model = replace(MODEL, model=f"m{i}")
        found.setdefault(bench.store.keys.partition_of(model.key), model)
        if len(found) == n:
            return [bench.put_model(each) for each in found.values()]
    raise AssertionError


def batch_of(model, name, numbers):
    return delivery(name, numbers, model)


def test_a_few_threads_merge_the_batches_of_every_partition(many):
    models = models_of(many, 20)
    before = threading.active_count()
    engine = many.engine()
    assert len(engine._partitions.threads) == THREADS + 1
    assert threading.active_count() - before < N
    for rest in range(2):
        # The second time, each partition has rested meanwhile.
        many.deliver(*(batch_of(each, f"b{rest}", [rest + 1]) for each in models))
        for each in models:
            assert many.merged(f"b{rest}", each).status == "merged"
    assert engine.is_alive


def test_entries_that_arrive_while_the_others_rest_wake_their_partition_at_once(many, monkeypatch):
    """Not only when the wait for all of them ends."""
    monkeypatch.setattr(stream_watch, "WAIT_S", 600.0)
    [model, other] = models_of(many, 2)
    many.engine()
    for name in ("b0", "b1", "b2"):
        many.deliver(batch_of(model, name, [1]))
        assert many.merged(name, model).status == "merged"
    many.deliver(batch_of(other, "b0", [1]))
    assert many.merged("b0", other).status == "merged"


class SlowLoop(PartitionLoop):
    """The loop of one partition makes no progress until a test lets it."""

    held = threading.Event()
    partition_of_held = -1

    def _commit(self, group):
        if self.partition == SlowLoop.partition_of_held:
            SlowLoop.held.wait(PATIENCE_S)
        return super()._commit(group)


def test_a_partition_without_progress_delays_no_other_and_gets_another_thread(many):
    slow, other = models_of(many, 2)
    SlowLoop.held.clear()
    SlowLoop.partition_of_held = many.store.keys.partition_of(slow.key)
    engine = many.engine(loop=SlowLoop)
    try:
        many.deliver(batch_of(slow, "b0", [1]))
        many.deliver(batch_of(other, "b0", [1]))
        assert many.merged("b0", other).status == "merged"
        threads = engine._partitions
        stuck = [
            s for s in threads._slots.values() if s.loop.partition == SlowLoop.partition_of_held
        ]
        eventually(lambda: stuck[0].thread is not None)
        old = stuck[0].thread
        engine._replace(SlowLoop.partition_of_held)
        assert old not in threads.threads and len(threads.threads) == THREADS + 1
        assert engine.is_alive
    finally:
        SlowLoop.held.set()
    # The loop that took its place merges the entry; the old one is stale, and its thread ends.
    assert many.merged("b0", slow).status == "merged"
    eventually(lambda: not old.is_alive())
    assert engine.is_alive


def test_leases_are_returned_at_a_stop(many):
    engine = many.engine()
    eventually(lambda: len(engine.partitions) == N)
    names = [many.store.keys.partition(number).lease for number in range(N)]
    assert None not in many.client.mget(names)
    assert engine.stop(PATIENCE_S)
    assert set(many.client.mget(names)) == {None}
    many.engines.remove(engine)


class CountedLoop:
    """A loop that consumes everything in each turn; it counts how often it is asked when it needs the next one."""

    abandoned, is_open, resumes_at, after_id = False, False, 0.0, "0-0"

    def __init__(self, bench, partition):
        self._bench, self.partition = bench, partition
        self.turns = self.looks = 0
        self.next_due_at = math.inf

    @property
    def due_at(self):
        self.looks += 1
        return self.next_due_at

    def turn(self, is_wanted):
        stream = self._bench.store.keys.partition(self.partition).stream
        found = self._bench.client.xrevrange(stream, count=1)
        if found:
            self.after_id = found[0][0].decode()
        self.next_due_at = math.inf
        self.is_open = True
        self.turns += 1
        return Turn.EMPTY


class HeldLeases:
    is_alone = True

    def holds(self, partition):
        return True

    def wanted(self, partitions):
        return list(partitions)


@pytest.fixture
def counted(many):
    """Threads of a worker, and their loops, which only count."""
    stop = threading.Event()
    threads: Any = PartitionThreads(many.store, HeldLeases(), stop, lambda n: CountedLoop(many, n))
    threads._check_s = 3600.0
    threads.start()
    eventually(lambda: all(each.turns for each in threads.loops))
    yield threads
    stop.set()
    threads.wake()
    for thread in threads.threads:
        thread.join(PATIENCE_S)


def test_an_entry_has_only_its_own_partition_looked_at(many, counted):
    loops = counted.loops
    before = sum(each.looks for each in loops[1:])
    for _ in range(20):
        turns = loops[0].turns
        append(many, 0)
        eventually(lambda turns=turns: loops[0].turns > turns)
    # Turns of the start may still have ended meanwhile.
    assert sum(each.looks for each in loops[1:]) - before < 10 * N


def test_a_partition_that_needs_a_turn_before_the_next_look_gets_it(many, counted):
    loops = counted.loops
    turn = loops[0].turn

    def turn_and_another(is_wanted):
        outcome = turn(is_wanted)
        if loops[0].turns == 2:
            loops[0].next_due_at = time.monotonic() + 0.1
        return outcome

    loops[0].turn = turn_and_another
    eventually(lambda: loops[0].turns == 1)
    append(many, 0)
    eventually(lambda: loops[0].turns == 3)


@pytest.fixture
def watch(many):
    found = StreamWatch(many.store)
    yield found
    found.close()


def ready_of(watch):
    """Partitions that a watch reports, waiting for the first."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ready, failed = watch.poll(0.5)
        if ready or failed:
            return ready + failed
    raise AssertionError("no partition is reported")


def append(bench, partition):
    return bench.client.xadd(bench.store.keys.partition(partition).stream, {"a": "b"}).decode()


def test_a_watch_reports_each_partition_once_until_it_is_added_again(many, watch):
    for partition in range(N):
        watch.add(partition, "0-0")
    assert watch.poll(0.0) == ([], [])
    first = append(many, 3)
    assert ready_of(watch) == [3]
    append(many, 3)
    append(many, 5)
    assert ready_of(watch) == [5]
    watch.add(3, first)
    assert ready_of(watch) == [3]


def test_a_partition_that_was_removed_is_not_reported(many, watch):
    watch.add(1, "0-0")
    watch.add(2, "0-0")
    watch.poll(0.0)
    watch.remove(1)
    append(many, 1)
    append(many, 2)
    assert ready_of(watch) == [2]


def test_a_partition_that_was_added_again_is_reported_once(many, watch):
    """Two requests name it, and both reply to its next entry."""
    for _ in range(2):
        watch.add(2, "0-0")
        watch.poll(0.0)
        watch.remove(2)
    watch.add(2, "0-0")
    watch.poll(0.0)
    append(many, 2)
    eventually(lambda: len(watch._readable(0.0)) > 1)
    assert watch.poll(0.5) == ([2], [])


def test_partitions_that_are_added_one_by_one_need_few_connections(many, watch):
    for partition in range(40):
        watch.add(partition, "0-0")
        assert watch.poll(0.0) == ([], [])
    assert len(watch._requests) <= stream_watch.MAX_REQUESTS
    for partition in (0, 39):
        append(many, partition)
        assert ready_of(watch) == [partition]


def test_the_requests_of_idle_partitions_become_one(many, watch, monkeypatch):
    monkeypatch.setattr(stream_watch, "WAIT_S", 0.3)
    for partition in range(8):
        watch.add(partition, "0-0")
        watch.poll(0.0)
    assert len(watch._requests) == 8
    eventually(lambda: (watch.poll(0.2), len(watch._requests))[1] == 1)


def test_a_watch_whose_connection_is_lost_reports_its_partitions(many, watch):
    watch.add(1, "0-0")
    watch.poll(0.0)
    many.client.client_kill_filter(_type="normal", skipme=True)
    assert ready_of(watch) == [1]
    watch.add(1, "0-0")
    append(many, 1)
    assert ready_of(watch) == [1]


def test_a_request_without_a_reply_in_time_is_given_up(many, monkeypatch):
    """A machine that vanished sends nothing more."""
    # No reply of the store ends the request before.
    monkeypatch.setattr(stream_watch, "WAIT_S", 3600.0)
    store = Store(many.settings.replace(socket_timeout_s=0.4))
    watch = StreamWatch(store)
    watch.add(1, "0-0")
    watch.poll(0.0)
    watch.poll(0.0)
    [request] = watch._requests.values()
    request.late_at = time.monotonic() - 1.0
    assert ready_of(watch) == [1] and not watch._requests
    watch.close()
    store.close()
