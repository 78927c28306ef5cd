"""The server of a side partition, or of the own one, loses its last writes: what is left counts once."""

from __future__ import annotations

import random

import pytest
from redis.exceptions import ConnectionError as StoreConnectionError

from calibrant_server.workers.ingest.errors import ModelMismatchError
from calibrant_server.workers.store.side_partitions import all_sides, side_partition
from tests.workers.driving import Bench
from tests.workers.ledger import N_CELLS, pane_of
from tests.workers.test_side_partitions import (
    N_PARTITIONS,
    loop_at,
    loops_of,
    of_side,
    put_hot,
    settle,
    spread,
    without_pauses,
)

pytestmark = pytest.mark.one_server


@pytest.fixture
def bench(settings, monkeypatch):
    without_pauses(monkeypatch)
    with Bench(settings.model_copy(update={"partitions": N_PARTITIONS})) as bench:
        yield bench


def held(bench, partition):
    """What the server of a partition has: each key with its content and time to live."""
    tag = bench.store.keys.partition(partition).tag
    names = sorted(bench.client.scan_iter(match=f"{tag}:*", count=1000))
    with bench.client.pipeline() as pipe:
        for name in names:
            pipe.dump(name)
            pipe.pttl(name)
        found = pipe.execute()
    return dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


def set_back(bench, partition, before):
    """Have the server of a partition lose what was written since."""
    with bench.client.pipeline() as pipe:
        for name in held(bench, partition):
            pipe.delete(name)
        for name, (content, ttl_ms) in before.items():
            pipe.restore(name, max(0, ttl_ms), content)
        pipe.execute()


@pytest.fixture
def side(bench):
    config = put_hot(bench)
    return config, config.side_partitions[0]


class TestSideServer:
    """It has forgotten deltas that the own partition has."""

    @pytest.mark.parametrize("n_again", [1, 2, 3])
    def test_batches_that_it_still_has_count_once(self, bench, side, n_again):
        """Other batches come together in the next deltas than in those that were forgotten."""
        config, at = side
        names = of_side(config, at, 6)
        own, loop = loops_of(bench, config)[0], loop_at(bench, at)
        bench.deliver(*(spread(config, name, [i]) for i, name in enumerate(names[:4])))
        before = held(bench, at)
        loop._count = 2
        settle(bench, config, (own, [loop]))
        set_back(bench, at, before)
        bench.deliver(*(spread(config, name, [4 + i]) for i, name in enumerate(names[4:])))
        loop = loop_at(bench, at)
        loop._count = n_again
        settle(bench, config, (own, [loop]))
        assert bench.pane(model=config).numbers == pane_of(range(6)).numbers
        assert {bench.merged(name, config).status for name in names} == {"merged"}
        receipts = bench.deliver(*(spread(config, name, [i]) for i, name in enumerate(names)))
        assert all(each.duplicate for each in receipts)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_a_batch_that_it_has_lost_counts_once_when_it_is_repeated_elsewhere(
        self, bench, side, n
    ):
        """The number of partitions was changed, and the repeat comes before a worker has looked what the server lost."""
        config, at = side
        own, loop = loops_of(bench, config)[0], loop_at(bench, at)
        names = of_side(config, at, 40)
        before = held(bench, at)
        for i, name in enumerate(names):
            bench.deliver(spread(config, name, [i]))
            if i % 10 == 9:
                settle(bench, config, (own, [loop]))
        set_back(bench, at, before)
        config = put_hot(bench, n)
        moved = [name for name in names if side_partition(config, name) != at]
        assert moved
        receipts = bench.deliver(*(spread(config, name, [names.index(name)]) for name in moved))
        assert all(each.duplicate and each.accepted == 1 for each in receipts)
        loops = [loop_at(bench, each) for each in all_sides(config)]
        settle(bench, config, (own, loops))
        assert bench.pane(model=config).numbers == pane_of(range(len(names))).numbers
        assert {bench.merged(name, config).status for name in moved} == {"merged"}

    @pytest.mark.parametrize("restarted", [False, True], ids=["the same worker", "another one"])
    def test_a_batch_that_it_has_lost_counts_once_when_it_is_repeated(self, bench, side, restarted):
        """The client did not get the reply, and sends the batch again."""
        config, at = side
        first, second, third = of_side(config, at, 3)
        own, loop = loops_of(bench, config)[0], loop_at(bench, at)
        bench.deliver(spread(config, second, [2]))
        settle(bench, config, (own, [loop]))
        before = held(bench, at)
        bench.deliver(spread(config, first, [1]))
        settle(bench, config, (own, [loop]))
        set_back(bench, at, before)
        loop = loop_at(bench, at) if restarted else loop
        # Each in a delta of its own.
        for name, number in ((third, 3), (first, 1), (second, 2)):
            bench.deliver(spread(config, name, [number]))
            settle(bench, config, (own, [loop]))
        assert bench.pane(model=config).numbers == pane_of([1, 2, 3]).numbers
        names = (first, second, third)
        assert {bench.merged(name, config).status for name in names} == {"merged"}

    def test_a_delta_that_is_only_in_memory_is_not_forwarded(self, bench, side, monkeypatch):
        config, at = side
        first, second = of_side(config, at, 2)
        own, loop = loops_of(bench, config)[0], loop_at(bench, at)
        bench.deliver(spread(config, first, [1]), spread(config, second, [2]))
        before = held(bench, at)
        with monkeypatch.context() as patch:
            patch.setattr(loop._outbox, "run", lambda *_: None)
            loop.step()
        set_back(bench, at, before)
        other = loop_at(bench, at)
        other._count = 1
        with monkeypatch.context() as patch:
            patch.setattr(other._outbox, "run", lambda *_: None)
            other._commit(other._single(other._read("0-0", 0.0)[0][0]))
        loop._step_or_reload()
        settle(bench, config, (own, [loop, other]))
        assert bench.pane(model=config).numbers == pane_of([1, 2]).numbers

    def test_nothing_is_reduced_before_the_own_partition_was_asked(self, bench, side, monkeypatch):
        config, at = side
        [name] = of_side(config, at)
        own, loop = loops_of(bench, config)[0], loop_at(bench, at)
        bench.deliver(spread(config, name, [1]))
        before = held(bench, at)
        settle(bench, config, (own, [loop]))
        set_back(bench, at, before)
        loop = loop_at(bench, at)

        def away(*_):
            raise StoreConnectionError("the other server is away")

        with monkeypatch.context() as patch:
            patch.setattr(loop._outbox, "_positions", away)
            for _ in range(3):
                loop._step_or_reload()
            assert not bench.client.exists(loop.keys.outbox)
        loop._resume_at = 0.0
        settle(bench, config, (own, [loop]))
        assert bench.pane(model=config).numbers == pane_of([1]).numbers


class TestLostSettings:
    """The server of the own partition has lost a change of the number of partitions, which side partitions know."""

    @pytest.fixture
    def lost(self, bench):
        two = put_hot(bench, 2)
        at = bench.store.keys.number_of(two)
        before = held(bench, at)
        four = put_hot(bench, 4)
        first, name = of_side(four, four.side_partitions[-1], 2)
        bench.deliver(spread(four, first, [3]))
        set_back(bench, at, before)
        # A process that still knows the change has a batch in a partition that it added.
        bench.deliver(spread(four, name, [1]))
        return two, four, name

    def test_a_process_that_reads_the_earlier_settings_restores_the_change(self, bench, lost):
        two, four, name = lost
        own_name = next(f"x{i}" for i in range(100) if side_partition(two, f"x{i}") is None)
        with Bench(bench.settings) as other:
            for batch in (name, own_name):
                with pytest.raises(ModelMismatchError) as refused:
                    other.deliver(spread(two, batch, [1]))
            current = refused.value.current
            assert (current.fill_partitions, current.revision) == (4, four.revision + 1)
            [receipt] = other.deliver(spread(current, name, [1]))
            assert receipt.duplicate
        with pytest.raises(ModelMismatchError):
            bench.deliver(spread(four, own_name, [2]))
        settle(bench, current)
        assert bench.pane(model=current).numbers == pane_of([1, 3]).numbers

    @pytest.mark.parametrize("n", [1, 3])
    def test_a_later_change_has_another_revision_and_knows_all_places(self, bench, lost, n):
        _, four, name = lost
        later = put_hot(bench, n)
        assert later.revision > four.revision and later.fill_partitions == n
        assert set(all_sides(later)) >= set(all_sides(four))
        [receipt] = bench.deliver(spread(later, name, [1]))
        assert receipt.duplicate
        with pytest.raises(ModelMismatchError):
            bench.deliver(spread(four, f"x{name}", [2]))
        settle(bench, later)
        assert bench.pane(model=later).numbers == pane_of([1, 3]).numbers


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]
)
def test_servers_that_lose_writes_at_random(bench, seed):
    """A batch is lost only if it came after what a server was set back to; none counts twice, repeats included."""
    chosen = random.Random(seed)
    config = put_hot(bench)
    own_number = bench.store.keys.number_of(config)
    loops = {each: loop_at(bench, each) for each in range(N_PARTITIONS)}
    before, sent, at_risk = {}, {}, set()

    def send(name):
        nonlocal config
        numbers = sent.setdefault(name, [len(sent) + 1])
        at_risk.update([name] if before else [])
        # As often as the service tries.
        for is_last in (False, False, True):
            try:
                bench.deliver(spread(config, name, numbers))
                return
            except ModelMismatchError as mismatch:
                if is_last:
                    raise
                config = mismatch.current

    for _ in range(200):
        what = chosen.random()
        if chosen.random() < 0.02:
            config = put_hot(bench, chosen.randrange(1, N_PARTITIONS))
        elif what < 0.35:
            send(f"b{chosen.randrange(N_CELLS - 1)}")
        elif what < 0.39:
            partition = chosen.choice([*all_sides(config), own_number])
            before = {partition: held(bench, partition)}
            # The own partition may lose what it merges from now on, whenever that was sent.
            at_risk.update(sent if partition == own_number else [])
        elif what < 0.43 and before:
            [(partition, content)] = before.items()
            set_back(bench, partition, content)
            before = {}
            if chosen.random() < 0.5:
                loops[partition] = loop_at(bench, partition)
        else:
            loops[chosen.randrange(N_PARTITIONS)]._step_or_reload()
    # A loop that was set back, and has nothing to commit, would not notice: here its connection was not lost.
    settle(bench, config, (loops[own_number], [loop_at(bench, each) for each in all_sides(config)]))
    cells = bench.pane(model=config).cells
    counted = {name: cells.get(number, 0) / number for name, [number] in sent.items()}
    assert set(counted.values()) <= {0, 1}
    assert {name for name, n in counted.items() if n == 0} <= at_risk
