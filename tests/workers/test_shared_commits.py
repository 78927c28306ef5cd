"""Entries that come shortly after a commit share the next one."""

from __future__ import annotations

import threading
import time

from calibrant_server.workers.ingest import partition_loop
from tests.workers.driving import delivery


class DeliveringWhileWaiting(threading.Event):
    """A stop event: while the loop waits for it, more batches come."""

    def __init__(self, deliver):
        super().__init__()
        self.deliver = deliver
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        self.deliver(len(self.waits))
        return False


def test_batches_within_the_moment_after_a_commit_are_one_commit(bench, monkeypatch):
    # On a busy machine the moment would be over before the second step.
    monkeypatch.setattr(partition_loop, "SHARED_COMMIT_S", 60.0)
    bench.put_model()
    loop = bench.loop()

    def deliver(n):
        bench.deliver(delivery(f"later{n}a"), delivery(f"later{n}b"))

    loop._stop = stop = DeliveringWhileWaiting(deliver)
    bench.deliver(delivery("first"))
    loop.step()
    assert not stop.waits, "the first batch waits for no other"
    token = bench.client.hget(loop.keys.cursor, "tok")
    loop.step()
    assert len(stop.waits) == 1 and 0 < stop.waits[0] <= 60.0
    assert bench.client.hget(loop.keys.cursor, "tok") != token
    assert [bench.merged(f"later1{n}").status for n in "ab"] == ["merged"] * 2


def test_a_loop_that_has_left_entries_does_not_wait(bench):
    bench.put_model()
    loop = bench.loop()
    loop._stop = stop = DeliveringWhileWaiting(lambda n: None)
    loop._reader.count = 1
    bench.deliver(*(delivery(f"b{n}", numbers=[1] * 10) for n in range(200)))
    loop.step()
    assert bench.client.xlen(loop.keys.stream), "more than one commit takes"
    loop.step()
    assert not stop.waits


def test_the_moment_is_longer_where_batches_come_fast_and_ends_for_another_partition(
    bench, monkeypatch
):
    monkeypatch.setattr(partition_loop, "SHARED_COMMIT_S", 60.0)
    bench.put_model()
    loop = bench.loop()
    assert [partition_loop.shared_s(n) for n in (1, 4, 100)] == [60.0, 120.0, 180.0]
    bench.deliver(*(delivery(f"b{n}") for n in range(9)))
    loop.step()
    assert loop._next_read_at - time.monotonic() > 120.0
    loop._stop = stop = DeliveringWhileWaiting(lambda n: bench.deliver(delivery(f"later{n}")))
    loop._is_wanted = lambda: len(stop.waits) == 2
    loop.step()
    assert stop.waits == [60.0, 60.0]
    assert bench.merged("later1").status == bench.merged("later2").status == "merged"
