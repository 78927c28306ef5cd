"""Hot models: batches of one model in several partitions are counted as in one, once, whatever dies in between."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as StoreConnectionError

from calibrant_server.workers.ingest import outbox, partition_loop
from calibrant_server.workers.ingest.dead_letters import dead_letters, replay
from calibrant_server.workers.ingest.errors import BatchConflictError, ModelMismatchError
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.side_partitions import (
    N_SHARDS,
    TooManyPartitions,
    all_sides,
    own_shards,
    shard_of,
    side_partition,
    with_sides,
)
from tests.workers.driving import MODEL, Bench, delivery, eventually
from tests.workers.ledger import pane_of

pytestmark = pytest.mark.one_server
N_PARTITIONS = 5


@pytest.fixture
def bench(settings):
    with Bench(settings.model_copy(update={"partitions": N_PARTITIONS})) as bench:
        yield bench


def without_pauses(monkeypatch):
    """Let an outbox act at once: neither gather, nor wait for the own partition, nor rest after an error."""
    for name in ("_POLL_S", "_POLL_FULL_S", "GATHER_S", "_AFTER_ERROR_S"):
        monkeypatch.setattr(outbox, name, 0.0)
    monkeypatch.setattr(partition_loop, "SHARED_HOT_COMMIT_S", 0.0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    without_pauses(monkeypatch)


def put_hot(bench, n=4, model=MODEL):
    """Declare a model that uses several partitions, or another number of them; its configuration."""
    registry = Registry(bench.inbox.client, bench.store.keys)
    current = bench.run(registry.found(model.tenant, model.model))
    config = replace(model if current is None else current, fill_partitions=n)
    return bench.run(registry.put(config, None if current is None else current.revision))


def spread(config, batch_id, numbers, **changes):
    return delivery(batch_id, numbers, config, may_spread=True, **changes)


def loop_at(bench, partition):
    """A loop on one partition, as after a lease is taken."""
    loop = bench.loop(model=replace(MODEL, partition=partition))
    loop._open_outbox()
    return loop


def loops_of(bench, config):
    """The loop of the own partition, and those of its side partitions."""
    own = bench.store.keys.number_of(config)
    return loop_at(bench, own), [loop_at(bench, each) for each in all_sides(config)]


def settle(bench, config, loops=None):
    """Step every loop until nothing waits."""
    own, sides = loops or loops_of(bench, config)
    for _ in range(100):
        worked = [loop._step_or_reload() for loop in (*sides, own)]
        waiting = [loop for loop in sides if bench.client.hlen(loop.keys.outbox_index)]
        if not any(worked) and not waiting:
            return
    raise AssertionError("something waits for ever")


def of_side(config, side=None, n=1, start=0):
    """Batch ids that a side partition has; any of them by default."""
    found = []
    at = start
    while len(found) < n:
        name = f"b{at}"
        place = side_partition(config, name)
        if place is not None and side in (None, place):
            found.append(name)
        at += 1
    return found


def of_own(config):
    return next(f"b{i}" for i in range(1000) if side_partition(config, f"b{i}") is None)


class TestRule:
    def test_the_own_partition_has_fewer_shards_and_each_other_as_many(self, bench):
        config = put_hot(bench)
        places = [side_partition(config, f"b{i}") for i in range(4000)]
        shares = {each: places.count(each) / len(places) for each in {*places}}
        own = shares.pop(None)
        assert len(shares) == 3 and max(shares.values()) - min(shares.values()) < 0.04
        assert 0.15 < own < 0.2 < min(shares.values())
        assert {shard_of(f"b{i}") for i in range(4000)} == set(range(N_SHARDS))

    @pytest.mark.parametrize("n", range(2, 65))
    def test_every_partition_has_a_shard(self, n):
        config = replace(MODEL, side_partitions=list(range(1, n)), own_shards=own_shards(n))
        places = {side_partition(config, f"b{i}") for i in range(4000)}
        assert places == {None, *range(1, n)}

    def test_a_configuration_of_an_earlier_version_keeps_its_shards_until_it_is_changed(
        self, bench
    ):
        four = put_hot(bench, 4)
        earlier = ModelConfig.from_json(replace(four, own_shards=None).to_json())
        places = [None, *four.side_partitions]
        for name in (f"b{i}" for i in range(200)):
            assert side_partition(earlier, name) == places[shard_of(name) % 4]
        changed = with_sides(earlier, earlier, bench.store.keys.number_of(four), N_PARTITIONS)
        assert changed.have_shards_moved and not four.have_shards_moved
        assert changed.own_shards == four.own_shards

    def test_side_partitions_stay_where_their_number_grows(self, bench):
        two = put_hot(bench, 2)
        four = put_hot(bench, 4)
        assert four.side_partitions[:1] == two.side_partitions
        assert len({*four.side_partitions, bench.store.keys.number_of(four)}) == 4
        one = put_hot(bench, 1)
        assert one.side_partitions == [] and all_sides(one) == all_sides(four)

    def test_more_than_the_store_has_are_rejected(self, bench):
        with pytest.raises(TooManyPartitions, match="received 6 partitions; the store has 5"):
            put_hot(bench, N_PARTITIONS + 1)

    def test_a_plain_model_has_none(self):
        assert with_sides(MODEL, None, 0, 5) == MODEL and not MODEL.has_sides


def test_batches_of_several_partitions_are_counted_as_in_one(bench):
    config = put_hot(bench)
    batches = {f"b{i}": [i, i + 1] for i in range(60)}
    bench.deliver(*(spread(config, name, numbers) for name, numbers in batches.items()))
    own, sides = loops_of(bench, config)
    assert all(bench.client.xlen(loop.keys.stream) for loop in (own, *sides))
    settle(bench, config, (own, sides))
    expected = pane_of([n for numbers in batches.values() for n in numbers])
    assert bench.pane(model=config).numbers == expected.numbers
    assert {bench.merged(name, config).status for name in batches} == {"merged"}
    n_merged = [int(bench.client.hget(loop.keys.cursor, "n")) for loop in (own, *sides)]
    assert sum(n_merged) == 60
    for loop in (own, *sides):
        n_in, out = bench.client.get(loop.keys.bytes_in), bench.client.hget(loop.keys.cursor, "out")
        assert n_in == out
        assert int(bench.client.hget(loop.keys.retained, "backlog:default") or 0) == 0
        assert not bench.client.exists(loop.keys.outbox, loop.keys.outbox_index)


@pytest.mark.parametrize("pane_bytes", [0, 1 << 30], ids=["panes", "rows"])
def test_slices_and_hours_are_those_of_one_partition(bench, pane_bytes):
    """Whether the delta has panes or the batches themselves."""
    bench.numerics = replace(bench.numerics, pane_bytes=lambda spec, n: pane_bytes)
    config = put_hot(bench, model=replace(MODEL, slices={"site": None}))
    numbers = {f"b{i}": list(range(i, i + 4)) for i in range(20)}
    for name, each in numbers.items():
        times = [(n % 3) * 3_600_000_000 for n in each]
        slices = {"site": [f"s{n % 2}" for n in each]}
        bench.deliver(spread(config, name, each, event_times=times, slices=slices))
    settle(bench, config)
    every = [n for each in numbers.values() for n in each]
    for hour in range(3):
        for slice_, rest in (("", None), ("site:s0", 0), ("site:s1", 1)):
            chosen = [n for n in every if n % 3 == hour and rest in (None, n % 2)]
            found = bench.pane(slice_, hour * 3600, config)
            assert found.numbers == pane_of(chosen).numbers


def test_a_batch_is_merged_with_its_delta_and_not_before(bench):
    config = put_hot(bench)
    [name] = of_side(config)
    bench.deliver(spread(config, name, [3]))
    own, sides = loops_of(bench, config)

    def status():
        return bench.run(bench.inbox.record(config.key, name)).status

    for loop in sides:
        loop.step()  # takes it from the stream
    assert status() == "accepted" and bench.pane(model=config).count == 0
    for loop in sides:
        loop.step()  # appends the delta
    assert status() == "accepted" and bench.client.xlen(own.keys.stream) == 1
    own.step()
    assert status() == "merged" and bench.pane(model=config).numbers == pane_of([3]).numbers
    # Also when the record of the delta has expired.
    for key in bench.client.scan_iter(match="*:b:*|[|]*"):
        bench.client.delete(key)
    assert status() == "merged"


def test_repeats_and_conflicts_are_found_where_the_batch_is(bench):
    config = put_hot(bench)
    loops = loops_of(bench, config)
    for name in (*of_side(config, n=3), of_own(config)):
        first, again = bench.deliver(*[spread(config, name, [1, 2])] * 2)
        assert sorted([first.duplicate, again.duplicate]) == [False, True]
        settle(bench, config, loops)
        repeat = bench.deliver(spread(config, name, [1, 2]))[0]
        assert (repeat.duplicate, repeat.status) == (True, "merged")
        with pytest.raises(BatchConflictError):
            bench.deliver(spread(config, name, [5]))
        # Rows whose order matters stay in the own partition; their ids are the same ids.
        with pytest.raises(BatchConflictError):
            bench.deliver(delivery(name, [6], config))
    assert bench.pane(model=config).numbers == pane_of([1, 2] * 4).numbers


def test_the_response_says_whether_a_batch_is_spread(bench):
    config = put_hot(bench)
    assert bench.deliver(spread(config, "b1", [1]))[0].spread is True
    assert bench.deliver(delivery("b2", [1], config))[0].spread is False
    plain = bench.put_model(replace(MODEL, model="plain"))
    assert bench.deliver(spread(plain, "b1", [1]))[0].spread is None


class Killed(BaseException):
    """Ends a step where a process would have died."""


def dies_at(monkeypatch, owner, name, before):
    """Have a method die once: before it does anything, or after it has done all."""
    method, left = getattr(owner, name), [1]

    def dying(*args, **kwargs):
        if not left:
            return method(*args, **kwargs)
        left.pop()
        if not before:
            method(*args, **kwargs)
        raise Killed

    monkeypatch.setattr(owner, name, dying)


class TestKilled:
    """The worker of a side partition dies; another one takes the partition."""

    @pytest.mark.parametrize(
        ("part", "before"),
        [("reduce", True), ("reduce", False), ("append", True), ("append", False), ("remove", True), ("remove", False)],
    )  # fmt: skip
    def test_everything_counts_once(self, bench, monkeypatch, part, before):
        config = put_hot(bench)
        names = of_side(config, config.side_partitions[0], 3)
        bench.deliver(*(spread(config, name, [1, 2]) for name in names))
        own, side = loops_of(bench, config)[0], loop_at(bench, config.side_partitions[0])
        owner, method = {
            "reduce": (side._fencing, "send"),
            "append": (side._outbox, "_run"),
            "remove": (side._outbox, "_remove"),
        }[part]
        dies_at(monkeypatch, owner, method, before)
        died = False
        for _ in range(6):
            try:
                side.step()
            except Killed:
                died = True
                side = loop_at(bench, config.side_partitions[0])
            own.step()
        assert died
        settle(bench, config)
        assert bench.pane(model=config).numbers == pane_of([1, 2] * 3).numbers
        assert {bench.merged(name, config).status for name in names} == {"merged"}
        assert not bench.client.exists(side.keys.outbox, side.keys.outbox_index)

    @pytest.mark.parametrize(
        "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]
    )
    def test_random_deaths_takeovers_repeats_and_changes(self, bench, monkeypatch, seed):
        """Many workers at once; each may lose replies, die and be overtaken; the number of partitions changes."""
        chosen = random.Random(seed)
        config = put_hot(bench)
        loops = {each: [loop_at(bench, each) for _ in range(2)] for each in range(N_PARTITIONS)}
        sent = {}
        for _ in range(150):
            what = chosen.random()
            if what < 0.4:
                name = f"b{chosen.randrange(60)}"
                sent.setdefault(name, [chosen.randrange(100) for _ in range(3)])
                try:
                    bench.deliver(spread(config, name, sent[name]))
                except ModelMismatchError as mismatch:
                    config = mismatch.current
                    bench.deliver(spread(config, name, sent[name]))
            elif what < 0.45:
                newer = put_hot(bench, chosen.choice([1, 2, 3, 5]))
                # Some of the time, the next batches come from a process that has not read it.
                config = newer if chosen.random() < 0.5 else config
            else:
                partition = chosen.randrange(N_PARTITIONS)
                which = chosen.randrange(2)
                loop = loops[partition][which]
                with monkeypatch.context() as patch:
                    if chosen.random() < 0.3:
                        owner, method = chosen.choice(
                            [
                                (loop._fencing, "send"),
                                (loop._outbox, "_run"),
                                (loop._outbox, "_append"),
                            ]
                        )
                        dies_at(patch, owner, method, chosen.random() < 0.5)
                    try:
                        loop._step_or_reload()
                    except Killed:
                        loops[partition][which] = loop_at(bench, partition)
        settle(bench, put_hot(bench, 3))
        expected = pane_of([n for numbers in sent.values() for n in numbers])
        assert bench.pane(model=config).numbers == expected.numbers
        assert {bench.merged(name, config).status for name in sent} == {"merged"}

    def test_a_delta_that_the_store_lost_is_appended_again(self, bench):
        config = put_hot(bench)
        [name] = of_side(config)
        bench.deliver(spread(config, name, [4]))
        own, sides = loops_of(bench, config)
        for loop in sides * 2:
            loop.step()
        bench.client.delete(own.keys.stream)
        for key in bench.client.scan_iter(match="*:b:*|[|]*"):
            bench.client.delete(key)
        bench.client.delete(own.keys.marks(config.key, config.generation))
        settle(bench, config, (own, sides))
        assert bench.pane(model=config).numbers == pane_of([4]).numbers

    @pytest.mark.parametrize("pane_bytes", [0, 1 << 30], ids=["panes", "rows"])
    def test_entries_that_may_have_killed_their_reader_count_once(self, bench, pane_bytes):
        """A sandbox reduces them first: the batch in the side partition, and its delta in the own one."""
        bench.numerics = replace(bench.numerics, pane_bytes=lambda spec, n: pane_bytes)
        config = put_hot(bench)
        [name] = of_side(config, config.side_partitions[0])
        bench.deliver(spread(config, name, [1, 2]))
        own, side = loops_of(bench, config)[0], loop_at(bench, config.side_partitions[0])
        for loop in (side, side, own):
            loop._fencing.cursor = replace(loop._fencing.cursor, danger_id=f"{1 << 60}-0")
            loop.step()
        settle(bench, config, (own, [side]))
        for loop in (side, own):
            loop._suspected.close()
        assert bench.pane(model=config).numbers == pane_of([1, 2]).numbers
        assert bench.merged(name, config).status == "merged"


class TestChanges:
    def test_a_process_with_the_old_number_is_refused_and_repeats_are_found(self, bench):
        two = put_hot(bench, 2)
        names = [*of_side(two, n=8), of_own(two)]
        bench.deliver(*(spread(two, name, [1]) for name in names))
        four = put_hot(bench, 4)
        receipts = bench.deliver(*(spread(four, name, [1]) for name in names))
        assert all(receipt.duplicate for receipt in receipts)
        assert any(side_partition(two, name) != side_partition(four, name) for name in names)
        for name in (*of_side(two, n=2, start=500), f"x{names[-1]}"):
            with pytest.raises(ModelMismatchError) as refused:
                bench.deliver(spread(two, name, [7]))
            assert refused.value.current.fill_partitions == 4
        settle(bench, four)
        assert bench.pane(model=four).count == len(names)

    def test_back_to_one_partition(self, bench):
        four = put_hot(bench, 4)
        names = of_side(four, n=5)
        bench.deliver(*(spread(four, name, [1]) for name in names))
        one = put_hot(bench, 1)
        receipts = bench.deliver(*(spread(one, name, [1]) for name in names))
        assert all(each.duplicate and each.spread is None for each in receipts)
        with pytest.raises(BatchConflictError):
            bench.deliver(spread(one, names[0], [2]))
        with pytest.raises(ModelMismatchError):
            bench.deliver(spread(four, of_side(four, start=900)[0], [2]))
        settle(bench, one)
        assert bench.pane(model=one).count == 5
        assert bench.merged(names[0], one).status == "merged"

    def test_a_process_that_was_not_told_cannot_add_a_batch_behind_the_change(self, bench):
        """It reads the old configuration before the change, and appends after another process has opened the partitions."""
        two = put_hot(bench, 2)
        four = put_hot(bench, 4)
        moved = next(
            name for name in of_side(four, n=200) if side_partition(two, name) != side_partition(four, name)
        )  # fmt: skip
        bench.deliver(spread(four, moved, [1]))
        with Bench(bench.settings) as other:
            other.inbox._appender.sides._opened[two.key] = (two.generation, two.revision)
            with pytest.raises(ModelMismatchError):
                other.deliver(spread(two, moved, [1]))
        settle(bench, four)
        assert bench.pane(model=four).count == 1


class TestRemoved:
    def test_a_deleted_model_leaves_no_delta_and_no_dead_letter(self, bench):
        config = put_hot(bench)
        names = of_side(config, n=6)
        bench.deliver(*(spread(config, name, [1]) for name in names))
        own, sides = loops_of(bench, config)
        for loop in sides:
            loop.step()
        bench.deliver(*(spread(config, name, [1]) for name in of_side(config, n=6, start=500)))
        registry = Registry(bench.inbox.client, bench.store.keys)
        bench.run(registry.delete(config))
        with pytest.raises(ModelMismatchError):
            bench.deliver(spread(config, of_side(config, start=900)[0], [1]))
        for _ in range(4):
            for loop in (*sides, own):
                loop._housekeeping.due_at = 0.0
                loop.step()
        # What is left expires: records of batches that were rejected after it.
        assert all(bench.client.ttl(name) > 0 for name in bench.keys_of(config))
        for loop in sides:
            assert not bench.client.exists(loop.keys.outbox, loop.keys.outbox_index)
            assert not bench.client.exists(loop.keys.side_models, loop.keys.gone_models)
            assert int(bench.client.hget(loop.keys.retained, "backlog:default") or 0) == 0
        assert all(not list(dead_letters(bench.store, each)) for each in range(N_PARTITIONS))

    def test_the_next_model_of_the_name_has_none_of_it(self, bench):
        config = put_hot(bench)
        name = of_side(config, config.side_partitions[0])[0]
        bench.deliver(spread(config, name, [1]))
        side = loop_at(bench, config.side_partitions[0])
        side.step()
        registry = Registry(bench.inbox.client, bench.store.keys)
        bench.run(registry.delete(config))
        newer = put_hot(bench, model=replace(MODEL, fill_partitions=4))
        assert bench.deliver(spread(newer, name, [5]))[0].duplicate is False
        settle(bench, newer)
        assert bench.pane(model=newer).numbers == pane_of([5]).numbers
        assert not side.keys.outbox_index or not bench.client.hlen(side.keys.outbox_index)

    def test_a_worker_forgets_a_model_whose_deletion_did_not_reach_it(self, bench):
        config = put_hot(bench)
        bench.deliver(
            spread(config, of_side(config, config.side_partitions[0])[0], [1], trick="raise")
        )
        side = loop_at(bench, config.side_partitions[0])
        side.step()
        assert len(list(dead_letters(bench.store, side.partition))) == 1
        own = bench.store.keys.of(config)
        bench.client.hdel(own.models, config.key)
        side._outbox.forget_gone_models(side._busy)
        assert not bench.client.exists(side.keys.side_models)
        assert not list(dead_letters(bench.store, side.partition))


def test_a_batch_that_cannot_be_filled_is_dead_lettered_alone(bench):
    config = put_hot(bench)
    good, bad = of_side(config, config.side_partitions[0], 2)
    bench.deliver(spread(config, good, [1]), spread(config, bad, [2], trick="raise"))
    settle(bench, config)
    assert bench.pane(model=config).numbers == pane_of([1]).numbers
    assert bench.merged(bad, config).status == "dead_lettered"
    [letter] = bench.run(bench.inbox.letters.of_model(config))
    assert letter.batch_id == bad
    assert bench.run(bench.inbox.letters.discard(config, letter.id))
    assert bench.run(bench.inbox.letters.of_model(config)) == []


def test_a_dead_lettered_delta_says_so_for_its_batches_and_counts_once_when_it_is_replayed(bench):
    """It is damaged on its way here, and whole again when an operator replays it."""
    bench.numerics = replace(bench.numerics, pane_bytes=lambda spec, n: 0)
    config = put_hot(bench)
    name = of_side(config, config.side_partitions[0])[0]
    bench.deliver(spread(config, name, [7]))
    own, side = loops_of(bench, config)[0], loop_at(bench, config.side_partitions[0])
    whole, numerics = own._numerics, replace(own._numerics, pane=None)
    own._numerics = numerics
    for _ in range(3):
        side.step()
        own.step()
    receipt = bench.merged(name, config)
    assert (receipt.status, receipt.accepted, receipt.rejected) == ("dead_lettered", 0, 1)
    assert not bench.client.hlen(side.keys.outbox_index)
    [letter] = list(dead_letters(bench.store, own.partition))
    own._numerics = whole
    assert replay(bench.store, own.partition, letter.id)
    assert bench.run(bench.inbox.record(config.key, name)).status == "accepted"
    settle(bench, config)
    assert bench.merged(name, config).status == "merged"
    assert bench.pane(model=config).numbers == pane_of([7]).numbers


class TestBacklog:
    def test_a_full_outbox_leaves_the_batches_in_the_stream(self, bench, monkeypatch):
        monkeypatch.setattr(outbox, "MAX_DELTAS", 2)
        config = put_hot(bench)
        side = loop_at(bench, config.side_partitions[0])
        names = of_side(config, side.partition, 5)
        for name in names:
            bench.deliver(spread(config, name, [1]))
            side.step()
        assert bench.client.hlen(side.keys.outbox_index) == 2
        assert bench.client.xlen(side.keys.stream) == 3
        troubles = bench.run(bench.inbox.troubles())
        assert (
            troubles.backlog_entries == 3 + 2 + 2
        )  # also the two deltas in the stream of the own partition
        settle(bench, config)
        assert bench.pane(model=config).count == 5
        assert bench.run(bench.inbox.troubles()).backlog_entries == 0

    def test_what_waits_in_an_outbox_counts_for_lag_and_tenant(self, bench):
        config = put_hot(bench)
        side = loop_at(bench, config.side_partitions[0])
        bench.deliver(spread(config, of_side(config, side.partition)[0], [1]))
        arrived_ms = int(bench.client.xrange(side.keys.stream)[0][0].split(b"-")[0])
        side.step()
        [text] = bench.client.hvals(side.keys.outbox_index)
        n_bytes = bench.client.hstrlen(side.keys.outbox, "1")
        assert text.decode().split(" ")[:2] == [str(arrived_ms), str(n_bytes)]
        assert int(bench.client.hget(side.keys.retained, "backlog:default")) == n_bytes
        eventually(lambda: bench.run(bench.inbox.troubles()).merge_lag_s > 0)

    def test_another_partition_that_is_away_delays_only_its_deltas(self, bench, monkeypatch):
        config = put_hot(bench)
        side = loop_at(bench, config.side_partitions[0])
        neighbour = bench.put_model(replace(MODEL, model="n", partition=side.partition))
        bench.deliver(delivery("n1", [9], neighbour))
        bench.deliver(spread(config, of_side(config, side.partition)[0], [1]))

        def away(*_):
            raise StoreConnectionError("the other server is away")

        # Since the worker has the partition, it has asked the other server once.
        side._outbox.check_forgotten([(config.key, config.generation)])
        whole = side._outbox._positions
        side._outbox._positions = away
        for _ in range(3):
            side.step()
        assert bench.pane(model=neighbour).numbers == pane_of([9]).numbers
        side._outbox._positions = whole
        settle(bench, config, (loops_of(bench, config)[0], [side]))
        assert bench.pane(model=config).numbers == pane_of([1]).numbers


class TestGathering:
    """For some time after a delta, the batches that arrive become one delta."""

    @pytest.fixture
    def side(self, bench, monkeypatch):
        monkeypatch.setattr(outbox, "GATHER_S", 3600.0)
        config = put_hot(bench)
        return config, loop_at(bench, config.side_partitions[0])

    def test_a_batch_after_a_pause_does_not_wait(self, bench, side, monkeypatch):
        config, loop = side
        names = of_side(config, loop.partition, 2)
        bench.deliver(spread(config, names[0], [1]))
        loop.step()
        assert bench.client.hget(loop.keys.cursor, "ob") == b"1"
        monkeypatch.setattr(outbox, "GATHER_S", 0.0)
        bench.deliver(spread(config, names[1], [1]))
        loop.step()
        assert bench.client.hget(loop.keys.cursor, "ob") == b"2"

    @pytest.mark.parametrize("ends", ["bytes", "time", "stop", "other partitions"])
    def test_the_next_ones_wait_until_there_are_many_or_it_is_time(
        self, bench, side, monkeypatch, ends
    ):
        config, loop = side
        names = of_side(config, loop.partition, 4)
        bench.deliver(spread(config, names[0], [1]))
        loop.step()
        own = loops_of(bench, config)[0]
        waits, wait = [], loop._stop.wait

        def while_it_waits(seconds):
            """Another batch arrives; then what ends the wait. That the last delta is merged does not end it."""
            waits.append(seconds)
            own.step()
            if len(waits) < 3:
                bench.deliver(spread(config, names[1 + len(waits)], [1]))
            elif ends == "bytes":
                monkeypatch.setattr(outbox, "GATHER_BYTES", 1)
            elif ends == "time":
                monkeypatch.setattr(outbox, "GATHER_S", 0.0)
            elif ends == "stop":
                loop._stop.set()
            else:
                loop._is_wanted = lambda: True
            return wait(0)

        monkeypatch.setattr(loop._stop, "wait", while_it_waits)
        bench.deliver(spread(config, names[1], [1]))
        loop.step()
        assert len(waits) == 3 and bench.client.xlen(loop.keys.stream) == 0
        assert bench.client.hkeys(loop.keys.outbox) == [b"2"]
        loop._stop.clear()
        settle(bench, config, (own, [loop]))
        assert bench.pane(model=config).count == 4

    @pytest.mark.parametrize("k", [1, 2])
    def test_the_own_partition_of_a_hot_model_makes_fewer_commits(self, bench, monkeypatch, k):
        monkeypatch.setattr(partition_loop, "SHARED_HOT_COMMIT_S", 3600.0)
        monkeypatch.setattr(partition_loop, "SHARED_COMMIT_S", 0.0)
        config = put_hot(bench, k)
        own = loops_of(bench, config)[0]
        names = [of_own(config), *(f"{of_own(config)}-{at}" for at in range(200))]
        first, second, third = [each for each in names if side_partition(config, each) is None][:3]
        bench.deliver(spread(config, first, [1]))
        own.step()
        waits, wait = [], own._stop.wait

        def while_it_waits(seconds):
            """Another batch arrives; then it is time."""
            waits.append(seconds)
            if len(waits) == 1:
                bench.deliver(spread(config, third, [3]))
            else:
                own._next_hot_commit_at = 0.0
            return wait(0)

        monkeypatch.setattr(own._stop, "wait", while_it_waits)
        bench.deliver(spread(config, second, [2]))
        token = bench.cursor(config)["tok"]
        own.step()
        assert bench.cursor(config)["tok"] != token
        # A model in one partition does not wait.
        assert bench.pane(model=config).count == (3 if k > 1 else 2)
