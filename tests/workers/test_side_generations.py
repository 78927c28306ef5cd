"""Side partitions of a model that is deleted and made again while a process that knows the earlier one has paused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrant_server.workers.ingest.errors import ModelMismatchError
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.side_partitions import close_sides, open_sides
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.ledger import pane_of
from tests.workers.test_side_partitions import (
    N_PARTITIONS,
    loop_at,
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


def remade(bench, older):
    """Delete a hot model and make it again."""
    bench.run(Registry(bench.inbox.client, bench.store.keys).delete(older))
    return put_hot(bench, model=replace(MODEL, fill_partitions=4))


def paused_close(bench, older):
    bench.run(close_sides(bench.inbox.client, bench.store.keys, older))


def paused_open(bench, older):
    bench.run(open_sides(bench.inbox.client, bench.store.keys, older))


@pytest.mark.parametrize("late", [paused_close, paused_open])
class TestLate:
    def test_batches_of_the_present_model_count(self, bench, late):
        """A service deletes the model, or opens it, and is stopped before its last step; another makes the model again."""
        older = put_hot(bench)
        newer = remade(bench, older)
        names = of_side(newer, n=6)
        bench.deliver(*(spread(newer, name, [3]) for name in names))
        late(bench, older)
        settle(bench, newer)
        assert {bench.merged(name, newer).status for name in names} == {"merged"}
        assert bench.pane(model=newer).numbers == pane_of([3] * 6).numbers

    def test_repeats_of_the_present_model_are_found(self, bench, late):
        """Whatever housekeeping removes of the earlier one."""
        older = put_hot(bench)
        newer = remade(bench, older)
        names = of_side(newer, n=6)
        bench.deliver(*(spread(newer, name, [3]) for name in names))
        settle(bench, newer)
        late(bench, older)
        for partition in newer.side_partitions:
            side = loop_at(bench, partition)
            side._outbox.forget_gone_models(side._busy)
            assert not bench.client.exists(side.keys.gone_models)
        again = bench.deliver(*(spread(newer, name, [3]) for name in names))
        assert all(each.duplicate for each in again)
        settle(bench, newer)
        assert bench.pane(model=newer).count == 6


def test_a_model_that_is_opened_while_a_worker_forgets_the_earlier_one_stays_open(bench):
    older = put_hot(bench)
    bench.deliver(spread(older, of_side(older, older.side_partitions[0])[0], [1]))
    side = loop_at(bench, older.side_partitions[0])
    side.step()
    bench.client.hdel(bench.store.keys.of(older).models, older.key)
    whole = side._node.eval

    def opened_first(*arguments):
        put_hot(bench, model=replace(MODEL, fill_partitions=4))
        return whole(*arguments)

    side._node.eval = opened_first
    side._outbox.forget_gone_models(side._busy)
    assert bench.client.hexists(side.keys.side_models, MODEL.key)


class TestMadeByItsFirstBatch:
    """A service does not know the model yet: its batch would make it, had another service not made it as a hot one."""

    def test_a_repeat_is_found_in_a_side_partition(self, bench):
        config = put_hot(bench)
        [name] = of_side(config)
        bench.deliver(spread(config, name, [1]))
        unknown = replace(MODEL, generation="", revision=0)
        receipt = bench.deliver(spread(unknown, name, [1], create=True))[0]
        assert receipt.duplicate
        settle(bench, config)
        assert bench.pane(model=config).count == 1

    def test_a_batch_is_not_added_behind_a_change_of_the_number(self, bench, monkeypatch):
        one = put_hot(bench, 1)
        appender = bench.inbox._appender
        whole, tries = appender._append_in_room, []

        async def changed_meanwhile(batch, record):
            tries.append(batch.create)
            if tries == [True, False]:
                four = replace(one, fill_partitions=4)
                registry = Registry(bench.inbox.client, bench.store.keys)
                changed.append(await registry.put(four, one.revision))
            return await whole(batch, record)

        changed = []
        monkeypatch.setattr(appender, "_append_in_room", changed_meanwhile)
        unknown = replace(MODEL, generation="", revision=0)
        with pytest.raises(ModelMismatchError) as refused:
            bench.deliver(delivery("b1", [1], unknown, create=True))
        assert refused.value.current == changed[0]


def test_a_suspected_batch_that_is_in_a_delta_is_not_counted_again(bench):
    """Its record expired while it waited, so that a repeat was accepted; a worker that had merged the first died of the second."""
    config = put_hot(bench)
    name = of_side(config, config.side_partitions[0])[0]
    side = loop_at(bench, config.side_partitions[0])
    bench.deliver(spread(config, name, [1]))
    bench.client.delete(side.keys.record(config.key, config.generation, name))
    bench.deliver(spread(config, name, [1]))
    first, _ = side._read(side.after_id, 0.0)[0]
    side._commit(side._single(first))
    bench.client.hset(side.keys.cursor, "chi", "9999999999999-0")
    settle(bench, config)
    assert bench.pane(model=config).count == 1


def test_a_suspected_batch_of_a_side_partition_counts(bench):
    """A worker died of it, or beside it; it is reduced in another process."""
    config = put_hot(bench)
    names = of_side(config, config.side_partitions[0], 3)
    side = loop_at(bench, config.side_partitions[0])
    bench.deliver(*(spread(config, name, [5, 6]) for name in names))
    bench.client.hset(side.keys.cursor, "chi", "9999999999999-0")
    settle(bench, config)
    assert bench.pane(model=config).numbers == pane_of([5, 6] * 3).numbers
    assert {bench.merged(name, config).status for name in names} == {"merged"}


def test_a_delta_of_a_deleted_model_does_not_enter_an_import_of_it(bench):
    """An import has the generation of the model that was exported."""
    config = put_hot(bench)
    side = loop_at(bench, config.side_partitions[0])
    first, second = of_side(config, side.partition, 2)
    bench.deliver(spread(config, first, [1]))
    side.step()
    bench.deliver(spread(config, second, [1]))
    registry = Registry(bench.inbox.client, bench.store.keys)
    bench.run(registry.delete(config))
    plain = replace(config, importing="x", fill_partitions=1, side_partitions=[])
    own = loop_at(bench, bench.run(registry.restore(plain)).partition)
    for _ in range(4):
        side._step_or_reload()
        own._step_or_reload()
    assert not bench.client.exists(side.keys.outbox_index)
    assert bench.pane(model=plain).count == 0
    assert not bench.client.exists(own.keys.marks(config.key, config.generation))
