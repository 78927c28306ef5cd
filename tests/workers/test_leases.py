"""Leases and heartbeats after the store's clock was set back, and the time within which others take over."""

from __future__ import annotations

import time

import pytest

from calibrant_server.workers.health import live_workers, read_health
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.leases import Leases
from calibrant_server.workers.store.partition_state import PartitionState
from tests.workers.driving import PATIENCE_S, delivery, eventually  # type: ignore[attr-defined]

TWO_HOURS_MS = 7_200_000


def alive(bench, name, age_s=0.0):
    """Announce a worker whose last heartbeat was so long ago."""
    seconds, microseconds = bench.client.time()
    bench.client.zadd(bench.store.keys.workers, {name: seconds + microseconds / 1e6 - age_s})


def test_a_lease_counts_while_its_worker_is_alive_however_long_it_lasts(bench):
    """A store whose clock was set back, or a lease of an earlier version, may have any end."""
    key = bench.store.keys.partition(0).lease
    leases = Leases(bench.store)
    for lasts_ms in (None, 5_000, TWO_HOURS_MS):
        alive(bench, "other")
        bench.client.set(key, "other", px=lasts_ms)
        assert not leases.take(0)
    bench.client.zrem(bench.store.keys.workers, "other")
    assert leases.take(0) and leases.holds(0)
    assert bench.client.pttl(key) == -1


@pytest.mark.parametrize(
    ("age_s", "taken"), [(0.0, False), (0.4, False), (0.9, True), (-0.4, False), (-7200.0, True)]
)
def test_a_heartbeat_protects_the_leases_of_its_worker(bench, age_s, taken):
    """Longer than the worker itself relies on them; a heartbeat far in the future says nothing."""
    alive(bench, "other", age_s)
    bench.client.set(bench.store.keys.partition(0).lease, "other")
    assert Leases(bench.store).take(0) is taken


def test_a_worker_without_a_heartbeat_protects_nothing(bench):
    bench.client.set(bench.store.keys.partition(0).lease, "unknown")
    assert Leases(bench.store).take(0)


def test_beats_write_no_leases(bench):
    """So that idle workers write as much for many partitions as for few."""
    leases = Leases(bench.store)
    leases.beat()
    assert leases.take(0) and leases.take(1)
    n_set = bench.client.info("commandstats")["cmdstat_set"]["calls"]
    for _ in range(10):
        leases.beat()
        assert leases.holds(0) and leases.holds(1)
    assert bench.client.info("commandstats")["cmdstat_set"]["calls"] == n_set


def test_a_lease_that_another_worker_took_is_noticed_by_the_next_beat(bench):
    leases = Leases(bench.store)
    leases.beat()
    assert leases.take(0)
    alive(bench, "other")
    bench.client.set(bench.store.keys.partition(0).lease, "other")
    leases.beat()
    assert not leases.holds(0)


@pytest.fixture
def of_many(bench):
    """A store of forty partitions, all of which one worker holds."""
    store = Store(
        bench.settings.replace(partitions=40, namespace=f"{bench.settings.namespace}-many")
    )
    leases = Leases(store)
    leases.beat()
    assert all(leases.take(number) for number in range(40))
    yield leases, store
    store.close()


def test_every_owner_is_read_by_each_beat(bench, of_many):
    leases, store = of_many
    for number in (3, 17):
        bench.client.set(store.keys.partition(number).lease, "other")
    leases.beat()
    assert not leases.holds(3) and not leases.holds(17)
    # Its worker has no heartbeat.
    assert leases.wanted([3, 17]) == [3, 17] and leases.take(3) and leases.take(17)


def served(leases, partitions):
    """Let workers take and release partitions until nothing changes; the partitions of each."""
    for _ in range(12):
        for each in leases:
            each.beat()
            held = [n for n in range(partitions) if each.holds(n)]
            for number in set(each._until) - set(held):
                each.give_back(number)
            for number in each.wanted([n for n in range(partitions) if n not in held]):
                each.take(number)
    return [{n for n in range(partitions) if each.holds(n)} for each in leases]


def test_a_worker_that_joins_gets_about_half_of_the_partitions(bench, of_many):
    first, store = of_many
    shares = served([first, Leases(store)], 40)
    assert all(18 <= len(each) <= 22 for each in shares) and len(set.union(*shares)) == 40


def test_workers_share_by_bytes_merged_not_by_number(bench, of_many, monkeypatch):
    """One partition merges as much as the 39 others: it ends alone, or nearly so."""
    first, store = of_many
    clock = [time.monotonic()]
    merged = [0]

    def bytes_merged(self):
        # Each look is a second after the last one.
        merged[0] += 1
        return {n: merged[0] * (39_000 if n == 7 else 1_000) for n in range(40)}

    monkeypatch.setattr(Leases, "_bytes_merged", bytes_merged)
    second = Leases(store)
    first._loads._seen_at = second._loads._seen_at = clock[0] - 1
    shares = served([first, second], 40)
    assert len(set.union(*shares)) == 40 and not shares[0] & shares[1]
    [hot] = [each for each in shares if 7 in each]
    assert len(hot) <= 8


def test_a_partition_that_nobody_takes_is_taken_by_any_worker(bench, of_many):
    """Also if the plans of two workers differ, or one of them is of an earlier version."""
    first, store = of_many
    second = Leases(store)
    served([first, second], 40)
    first.give_back(5)
    second.give_back(5)
    for each in (first, second):
        each._plan[5] = "another"
        each.beat()
        assert each.wanted([5]) == []
    first._survey_in = second._survey_in = 9
    first.beat()
    assert first.wanted([5]) == [5] and first.take(5)
    second.beat()
    assert second.wanted([5]) == []


def test_a_lease_that_could_not_be_released_is_taken_again(bench, of_many, monkeypatch):
    """Its worker is alive, so nobody else can take it, whatever the plan says."""
    first, store = of_many
    second = Leases(store)
    shares = served([first, second], 40)
    number = min(shares[0])

    def rejected(*_, **__):
        raise ConnectionError("NOREPLICAS")

    with monkeypatch.context() as patched:
        patched.setattr(Leases, "_lease", rejected)
        with pytest.raises(ConnectionError):
            first.give_back(number)
    first._survey_in = second._survey_in = 9
    first._plan[number] = second._plan[number] = second.name
    assert not first.holds(number) and not second.take(number)
    first.beat()
    assert first.wanted([number]) == []
    first.beat()
    assert first.wanted([number]) == [number] and first.take(number)


def test_a_lease_that_is_released_during_a_beat_stays_released(bench, monkeypatch):
    leases = Leases(bench.store)
    leases.beat()
    assert leases.take(0)
    monkeypatch.setattr(
        leases, "_roll_call", lambda: leases.give_back(0) or ([leases.name], {0: None})
    )
    leases.beat()
    assert bench.client.get(bench.store.keys.partition(0).lease) is None and not leases.holds(0)


def test_a_lease_that_has_ended_is_taken_again(bench):
    leases = Leases(bench.store)
    leases.beat()
    assert leases.take(0)
    bench.client.delete(bench.store.keys.partition(0).lease)
    leases.beat()
    assert leases.holds(0)
    assert bench.client.get(bench.store.keys.partition(0).lease) == leases.name.encode()


def test_a_dead_workers_name_is_not_used_to_release_a_lease_of_another(bench):
    key = bench.store.keys.partition(0).lease
    bench.client.set(key, "alive")
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


def test_others_take_over_from_a_dead_worker_within_a_lease(bench):
    settings = bench.settings
    first, second = Leases(bench.store), Leases(bench.store)
    shares = served([first, second], 2)
    assert [len(each) for each in shares] == [1, 1]
    [of_second] = shares[1]
    second.beat()
    died = time.monotonic()
    # Only `first` beats from here on, four times a lease, and looks for vacant partitions as often as its threads do.
    took = None
    while took is None:
        time.sleep(settings.lease_s / 8)
        first.beat()
        if first.wanted([of_second]) and first.take(of_second):
            took = time.monotonic() - died
    assert took >= 0.5 * settings.lease_s
    assert bench.client.get(bench.store.keys.partition(of_second).lease) == first.name.encode()
    assert took <= PATIENCE_S


def state(now_ms, first_ms, progress_ms=0):
    first = b"" if first_ms is None else b"%d-0" % first_ms
    return PartitionState.of([1, 9, 4, first, progress_ms, now_ms, 0, 0, 0, b""])


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
