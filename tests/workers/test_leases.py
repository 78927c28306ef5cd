"""Leases and heartbeats after the store's clock was set back, and the time within which others take over."""

from __future__ import annotations

import time

import pytest

from calibrant_server.workers.health import live_workers, read_health
from calibrant_server.workers.store.leases import Leases
from calibrant_server.workers.store.partition_state import PartitionState
from tests.workers.driving import delivery, eventually

TWO_HOURS_MS = 7_200_000


def test_a_lease_longer_than_twice_its_length_has_no_owner(bench):
    key = bench.store.keys.partition(0).lease
    leases = Leases(bench.store)
    bench.client.set(key, "dead", px=int(1.9 * 0.75 * 1000))
    assert not leases.take(0)
    bench.client.set(key, "dead", px=TWO_HOURS_MS)
    assert leases.take(0) and leases.holds(0)
    assert bench.client.pttl(key) <= 1000
    bench.client.set(key, "dead")
    assert leases.take(0)


def test_a_dead_workers_name_is_not_used_to_release_a_lease_of_another(bench):
    key = bench.store.keys.partition(0).lease
    bench.client.set(key, "alive", px=500_000)
    Leases(bench.store).give_back(0)
    assert bench.client.get(key) == b"alive"


def test_a_heartbeat_in_the_future_counts_neither_in_the_share_nor_in_health(bench):
    now = bench.client.time()[0]
    bench.client.zadd(bench.store.keys.workers, {"dead:1:a": now + 7200, "dead:2:b": now + 7200})
    assert live_workers(bench.store) == []
    leases = Leases(bench.store)
    leases.beat()
    assert leases.take(0) and leases.take(1)
    assert live_workers(bench.store) == [leases.name]
    assert bench.client.zcard(bench.store.keys.workers) == 1


def test_a_partition_of_a_worker_that_died_with_the_clock_ahead_is_merged(bench):
    """Two hours ahead its lease was taken, and the clock was then set right."""
    bench.put_model()
    keys, now = bench.store.keys, bench.client.time()[0]
    for number in range(2):
        bench.client.set(keys.partition(number).lease, "dead:1:a", px=TWO_HOURS_MS)
    bench.client.zadd(keys.workers, {"dead:1:a": now + 7200})
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    assert bench.merged("b1").status == "merged"


def test_others_count_a_dead_worker_out_before_its_lease_ends(bench):
    """So that the partitions are free and wanted at the same time: takeover within one lease."""
    settings = bench.settings
    first, second = Leases(bench.store), Leases(bench.store)
    for each in (first, second):
        each.beat()
    first.beat()
    assert [first.take(number) for number in range(2)] == [True, False]
    died = time.monotonic()
    assert second.take(1)
    second.beat()
    died = time.monotonic()
    # Only `first` beats from here on, four times a lease, and tries to take as often as its loops do.
    took = None
    while took is None:
        time.sleep(settings.lease_s / 8)
        first.beat()
        if first.take(1):
            took = time.monotonic() - died
    assert took >= 0.5 * settings.lease_s
    assert bench.client.pttl(bench.store.keys.partition(1).lease) <= 750


def state(now_ms, first_ms, progress_ms=0):
    first = b"" if first_ms is None else b"%d-0" % first_ms
    return PartitionState.of([1, 9, 4, first, progress_ms, now_ms, 0, 0, 0, -2])


@pytest.mark.parametrize(("first_ms", "progress_ms", "stalled"), [
    (None, 0, False),  # no backlog
    (99_000, 0, False),  # it has just arrived
    (99_000, 50_000, False),
    (50_000, 99_000, False),  # a long backlog on which work advances
    (50_000, 90_000, True),
    (50_000, 0, True),
    (100_000 + TWO_HOURS_MS, 50_000, True),  # a time in the future says nothing
    (50_000, 100_000 + TWO_HOURS_MS, True),
    (100_000 + TWO_HOURS_MS, 99_000, False),
])  # fmt: skip
def test_a_backlog_that_does_not_advance_for_two_leases_is_stalled(first_ms, progress_ms, stalled):
    assert state(100_000, first_ms, progress_ms).is_stalled(4.0) is stalled


def test_health_fails_while_a_backlog_does_not_advance(bench):
    bench.put_model()
    leases = Leases(bench.store)
    leases.beat()
    host = leases.name.partition(":")[0]
    bench.deliver(delivery("b1", [1]))
    keys = bench.store.keys.of_model("default/m")
    assert not read_health(bench.store, host).is_red
    [(_, fields)] = bench.client.xrange(keys.stream)
    # The entry has waited for long, and nothing was committed.
    bench.client.delete(keys.stream)
    bench.client.xadd(keys.stream, fields, id="1-0")
    found = read_health(bench.store, host)
    assert found.is_red and (found.stalled_partitions, found.workers_here) == (1, 1)
    bench.engine()
    eventually(lambda: read_health(bench.store, host).stalled_partitions == 0)
    assert bench.merged("b1").status == "merged"
    assert not read_health(bench.store, host).is_red
