"""The partition loop against a real store: what counts, once, where."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from redis.exceptions import ConnectionError as StoreConnectionError

from calibrant_server.workers.ingest.entries import PANE
from calibrant_server.workers.ingest.inbox_errors import StoreFullError
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_updates
from calibrant_server.workers.store.commit import StaleTokenError
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.registry import RevisionConflict
from tests.workers.driving import MODEL, delivery, eventually, totals
from tests.workers.ledger import LedgerHistogram, pane_of

HOUR_US = 3_600_000_000


def drained(bench, loop, batch_id=None):
    """Step a loop until its stream is empty."""
    while bench.client.xlen(loop.keys.stream):
        loop._step_or_reload()
    return batch_id and bench.run(bench.inbox.record(MODEL.key, batch_id))


def test_rows_go_to_their_panes_and_slices(bench):
    bench.put_model()
    times = np.array([0, 1, 5]) * HOUR_US
    batch = delivery(
        "b1", [10, 20, 30], event_times=times, slices={"site": np.array(["A", "B", "A"])}
    )
    bench.deliver(batch)
    drained(bench, bench.loop())
    assert bench.starts() == [0, 3600, 18000]
    assert bench.pane().numbers == pane_of([10, 20, 30]).numbers
    assert bench.pane("site:A").numbers == pane_of([10, 30]).numbers
    assert bench.pane("site:B", 3600).numbers == pane_of([20]).numbers
    assert bench.run(bench.inbox.slices(MODEL)) == ["", "site:A", "site:B"]


def test_the_state_does_not_depend_on_order_or_runs(bench):
    bench.put_model()
    chance = random.Random(5)
    numbers = [[chance.randrange(1000) for _ in range(chance.randrange(1, 9))] for _ in range(120)]
    loops = [bench.loop(), bench.loop()]
    for i, some in enumerate(numbers):
        bench.deliver(
            delivery(f"b{i}", some, event_times=np.array([n % 3 * HOUR_US for n in some]))
        )
        if chance.random() < 0.2:
            chance.choice(loops)._step_or_reload()
    drained(bench, loops[0])
    every = [number for some in numbers for number in some]
    assert bench.pane().numbers == pane_of(every).numbers
    assert bench.pane("", 3600).numbers == pane_of([n for n in every if n % 3 == 1]).numbers
    assert bench.cursor()["n"] == "120"
    assert bench.cursor()["out"] == bench.client.get(loops[0].keys.bytes_in).decode()


def test_many_entries_go_into_one_commit(bench):
    bench.put_model()
    bench.deliver(*(delivery(f"b{i}", [i]) for i in range(100)))
    loop = bench.loop()
    loop.step()
    assert bench.client.xlen(loop.keys.stream) == 0


def test_a_worker_that_was_overtaken_writes_nothing(bench):
    bench.put_model()
    slow, quick = bench.loop(), bench.loop()
    bench.deliver(delivery("b1", [1]))
    send = slow._fencing.send

    def after_the_other(*args, **kwargs):
        quick.step()
        return send(*args, **kwargs)

    slow._fencing.send = after_the_other
    with pytest.raises(StaleTokenError):
        slow.step()
    slow._fencing.send = send
    slow._cache.forget()
    slow._fencing.reload()
    bench.deliver(delivery("b2", [2]))
    slow.step()
    assert bench.pane().numbers == pane_of([1, 2]).numbers


def test_a_commit_whose_reply_is_lost_counts_once(bench):
    bench.put_model()
    loop = bench.loop()
    run, lost = loop._store.run, []

    def losing(partition, script, keys, args=()):
        reply = run(partition, script, keys, args)
        if script == "commit" and not lost:
            lost.append(reply)
            raise StoreConnectionError("lost")
        return reply

    loop._store.run = losing
    for i in range(3):
        bench.deliver(delivery(f"b{i}", [i]))
        loop._step_or_reload()
    assert lost
    assert bench.pane().numbers == pane_of(range(3)).numbers


def test_a_second_copy_of_an_entry_is_dropped(bench):
    """What two copies of a request at the same time leave in the stream."""
    bench.put_model()
    bench.deliver(delivery("b1", [4]))
    loop = bench.loop()
    ((_, fields),) = bench.client.xrange(loop.keys.stream)
    bench.client.xadd(loop.keys.stream, fields)
    loop.step()
    bench.client.xadd(loop.keys.stream, fields)
    loop.step()
    assert bench.pane().numbers == pane_of([4]).numbers
    assert bench.client.xlen(loop.keys.stream) == 0 and bench.dead_letters() == []


def test_an_id_keeps_the_time_it_was_promised(bench):
    bench.put_model()
    bench.deliver(delivery("b1"))
    loop = bench.loop()
    name = loop.keys.record(MODEL.key, MODEL.generation, "b1")
    bench.client.expire(name, 100)
    loop.step()
    assert 0 < bench.client.ttl(name) <= 100
    bench.deliver(delivery("b2"))
    bench.client.delete(loop.keys.record(MODEL.key, MODEL.generation, "b2"))
    loop.step()
    assert bench.client.ttl(loop.keys.record(MODEL.key, MODEL.generation, "b2")) > 86_000


def test_a_packed_pane_adds_like_its_predictions(bench):
    bench.put_model()
    payload = pack_updates(
        [PackedUpdate(pane_of([3, 4]).pack(), event_time_us=7 * HOUR_US, slices={"site": "A"})]
    )
    bench.deliver(replace(delivery("b1"), kind=PANE, payload=payload))
    drained(bench, bench.loop())
    assert bench.pane("site:A", 7 * 3600).numbers == bench.pane("", 7 * 3600).numbers
    assert bench.pane().numbers == pane_of([3, 4]).numbers


class TestRunningTotals:
    """`mode: cumulative`: loss, repetition and reordering do no harm."""

    def test_the_largest_sequence_of_each_epoch_is_kept(self, bench):
        bench.put_model()
        sent = [(epoch, sequence) for epoch in (1, 2) for sequence in range(1, 8)]
        chance = random.Random(3)
        chance.shuffle(sent)
        loop = bench.loop()
        for i, (epoch, sequence) in enumerate(sent[:9] + sent):
            histogram = LedgerHistogram(10 * sequence, 100 * epoch + sequence, event_time=0)
            bench.deliver(totals(f"b{i}", histogram, epoch=epoch, sequence=sequence))
            if chance.random() < 0.4:
                loop._step_or_reload()
        drained(bench, loop)
        assert bench.pane("", 0).numbers[:2] == (140, 107 + 207)

    def test_what_became_of_each_is_reported(self, bench):
        bench.put_model()
        loop = bench.loop()

        def outcome(batch_id, count, sequence):
            bench.deliver(
                totals(batch_id, LedgerHistogram(count, 0, event_time=0), sequence=sequence)
            )
            return drained(bench, loop, batch_id)

        assert outcome("b1", 5, 2).stale is False
        stale = outcome("b2", 3, 1)
        assert (stale.status, stale.stale) == ("merged", True)
        assert outcome("b3", 5, 2).duplicate
        conflict = outcome("b4", 6, 2)
        assert conflict.status == "rejected" and conflict.errors[0]["rule"] == "sequence_conflict"
        assert bench.pane().count == 5

    def test_sources_cases_and_slices_stand_beside_each_other(self, bench):
        bench.put_model()
        for i, (source, case, slice_) in enumerate(
            [("a", "x", ()), ("b", "x", ()), ("a", "y", ()), ("a", "x", (("site", "A"),))]
        ):
            histogram = LedgerHistogram(1, 1, event_time=0, slice=slice_, case=case)
            bench.deliver(totals(f"b{i}", histogram, source=source))
        drained(bench, bench.loop())
        assert bench.pane("site:A").count == 1
        assert bench.pane().count == 3 or bench.pane().count == 4

    def test_totals_survive_a_change_of_worker(self, bench):
        bench.put_model()
        bench.deliver(totals("b1", LedgerHistogram(4, 40, event_time=0), sequence=1))
        drained(bench, bench.loop())
        bench.deliver(delivery("b2", [1], event_times=np.array([0])))
        bench.deliver(totals("b3", LedgerHistogram(6, 70, event_time=0), sequence=2))
        drained(bench, bench.loop())
        assert bench.pane("", 0).numbers[:2] == (7, 71)


class TestBadEntries:
    """They are dead-lettered with a reason, and the rest continues."""

    def test_unreadable_entries_become_dead_letters(self, bench):
        bench.put_model()
        loop = bench.loop()
        good = delivery("b0", [5])
        bench.deliver(good)
        bench.client.xadd(loop.keys.stream, {"x": "not an entry"})
        bench.deliver(replace(delivery("b1"), payload=b"\xff\x00"))
        bench.deliver(delivery("b2", [6], trick="raise"), delivery("b3", [7]))
        drained(bench, loop)
        whys = [letter[b"why"].decode() for letter in bench.dead_letters()]
        assert len(whys) == 3 and "no field" in whys[0] and "cannot be filled" in whys[2]
        assert all(b"src" in letter for letter in bench.dead_letters())
        assert bench.pane().numbers == pane_of([5, 7]).numbers
        assert bench.merged("b2").status == "dead_lettered"
        assert bench.cursor()["n"] == "2"
        assert bench.deliver(delivery("b2", [6], trick="raise"))[0].duplicate

    def test_sums_that_cannot_be_read_are_left_alone(self, bench):
        bench.put_model()
        loop = bench.loop()
        name = loop.keys.pane(PaneKey(MODEL.key, MODEL.generation, "", 0))
        bench.client.hset(name, "sums", "garbage")
        bench.deliver(
            totals("b1", LedgerHistogram(1, 1, event_time=0)),
            totals("b2", LedgerHistogram(1, 2, event_time=HOUR_US)),
        )
        drained(bench, loop)
        assert bench.merged("b2").status == "merged"
        assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "parked"
        assert bench.client.hgetall(name) == {b"sums": b"garbage"}
        assert bench.pane("", 3600).numbers[:2] == (1, 2)

    def test_rows_for_damaged_sums_stay_rows_until_the_sums_are_readable(self, bench):
        bench.put_model()
        loop = bench.loop()
        key = PaneKey(MODEL.key, MODEL.generation, "", 0)
        bench.client.hset(loop.keys.pane(key), "sums", "garbage")
        for i in range(8):  # more than a tail takes here
            bench.deliver(delivery(f"b{i}", [i] * 20, event_times=np.zeros(20, np.int64)))
            drained(bench, loop)
        assert bench.merged("b7").status == "merged"
        assert bench.client.hgetall(loop.keys.pane(key)) == {b"sums": b"garbage"}
        bench.client.delete(loop.keys.pane(key))
        every = [i for i in range(8) for _ in range(20)]
        assert bench.pane("", 0).numbers == pane_of(every).numbers
        loop._cache.forget()
        bench.deliver(delivery("b8", [8] * 20, event_times=np.zeros(20, np.int64)))
        drained(bench, loop)
        assert not bench.client.exists(loop.keys.tail(key))
        assert bench.pane("", 0).numbers == pane_of(every + [8] * 20).numbers

    def test_rows_that_cannot_be_read_are_left_alone(self, bench):
        bench.put_model()
        loop = bench.loop()
        name = loop.keys.tail(PaneKey(MODEL.key, MODEL.generation, "", 0))
        bench.client.hset(name, "0", "garbage")
        bench.deliver(
            delivery("b1", [1], event_times=np.array([0])),
            delivery("b2", [2], event_times=np.array([HOUR_US])),
        )
        drained(bench, loop)
        assert bench.merged("b2").status == "merged"
        assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "parked"
        assert bench.client.hgetall(name) == {b"0": b"garbage"}
        assert bench.pane("", 3600).numbers == pane_of([2]).numbers


class TestDeletion:
    """A deleted model leaves nothing behind, and its name can begin anew."""

    @pytest.fixture
    def registry(self, bench):
        from calibrant_server.workers.store.registry import Registry

        return Registry(bench.inbox.client, bench.inbox.keys)

    def test_no_key_is_left(self, bench, registry):
        bench.put_model()
        loop = bench.loop()
        slices = {"site": np.array([f"s{i}" for i in range(12)])}
        times = np.arange(12) * HOUR_US
        bench.deliver(
            *(delivery(f"b{i}", range(12), event_times=times, slices=slices) for i in range(3))
        )
        loop.step()
        assert len(bench.keys_of()) > 20
        bench.deliver(delivery("late", [1]))
        bench.run(registry.delete(MODEL))
        drained(bench, loop)
        assert bench.keys_of() == []
        assert bench.run(registry.get("default", "m")) is None
        assert not bench.dead_letters()

    def test_a_second_life_does_not_see_the_first(self, bench, registry):
        bench.put_model()
        loop = bench.loop()
        bench.deliver(delivery("b1", [1]))
        loop.step()
        bench.run(registry.delete(MODEL))
        second = bench.run(registry.put(MODEL, None))
        assert second.generation != MODEL.generation
        (receipt,) = bench.deliver(delivery("b1", [2], model=second))
        assert not receipt.duplicate
        drained(bench, loop)
        assert bench.pane(model=second).numbers == pane_of([2]).numbers
        assert bench.keys_of() == []

    def test_a_batch_behind_the_deletion_is_rejected(self, bench, registry):
        bench.put_model()
        loop = bench.loop()
        bench.deliver(delivery("b1", [1]))
        ((_, fields),) = bench.client.xrange(loop.keys.stream)
        bench.run(registry.delete(MODEL))
        bench.client.xadd(loop.keys.stream, {**fields, b"i": b"b2"})
        drained(bench, loop)
        record = bench.client.get(loop.keys.record(MODEL.key, MODEL.generation, "b2"))
        assert b"rejected" in record and bench.starts() == []

    def test_deleting_what_has_changed_is_rejected(self, bench, registry):
        bench.put_model()
        with pytest.raises(RevisionConflict):
            bench.run(registry.delete(replace(MODEL, revision=9)))


def test_panes_past_retention_go_and_others_stay(bench):
    model = bench.put_model(replace(MODEL, retention_s=86_400))
    now_us = int(time.time() * 1e6)
    times = np.array([now_us, now_us - 40 * HOUR_US])
    bench.deliver(
        delivery("b1", [1, 2], event_times=times, slices={"age": np.array(["new", "old"])})
    )
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    loop.step()
    assert len(bench.starts(model=model)) == 2
    before = bench.cursor()["tok"]
    loop._housekeeping.due_at = 0.0
    loop.step()
    assert bench.pane().numbers == pane_of([1]).numbers
    assert bench.run(bench.inbox.slices(model)) == ["", "age:new"]
    assert bench.cursor()["tok"] != before and bench.cursor()["n"] == "1"
    bench.deliver(delivery("b2", [3], event_times=times[1:]))
    loop._housekeeping.due_at = float("inf")
    loop.step()
    assert bench.pane("", bench.starts()[0]).numbers == pane_of([3]).numbers


def test_spent_counters_go(bench):
    loop = bench.loop()
    bench.client.hset(loop.keys.record_bytes, mapping={"1": 10, str(int(time.time())): 10})
    loop._housekeeping.drop_spent_buckets()
    assert len(bench.client.hkeys(loop.keys.record_bytes)) == 1


def test_a_full_memory_drains_alone(bench, settings):
    bench.put_model()
    bench.deliver(*(delivery(f"b{i}", range(50)) for i in range(50)))
    used = int(bench.client.info("memory")["used_memory"])
    # By more than the buffers of connections, which come and go.
    bench.client.config_set("maxmemory", used - 100_000)
    try:
        with pytest.raises(StoreFullError, match="memory"):
            bench.deliver(delivery("refused"))
        bench.engine()
        eventually(lambda: bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 0)
    finally:
        bench.client.config_set("maxmemory", 0)
    assert bench.pane().count == 2500
    bench.deliver(delivery("refused"))
    assert bench.merged("refused").status == "merged"
