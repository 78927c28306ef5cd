"""Steps of a move: the model is in the new partition with all that it had, or stays where it is."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace

import pytest

from calibrant_server.workers.ingest.dead_letters import dead_letters, discard
from calibrant_server.workers.ingest.entries import move_order
from calibrant_server.workers.lifecycle import model_move
from calibrant_server.workers.lifecycle.model_move import ModelMove, MoveInterrupted, MoveRejected
from calibrant_server.workers.store.connection import NotReplicated, Store
from calibrant_server.workers.store.registry import Registry
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery, eventually
from tests.workers.ledger import pane_of
from tests.workers.model_move.moving import Killed, config_at, keys_at, mover, placed

# One test uses both server programs; the scripts are the same for the others.
one_server = pytest.mark.one_server


def test_a_model_moves_and_everything_goes_on(bench, moved):
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1, 2], slices={"site": ["a", "b"]}), delivery("b2", [3]))
    assert {bench.merged(name).status for name in ("b1", "b2")} == {"merged"}
    versions = bench.store.keys.of_model(MODEL.key).versions(MODEL.key, MODEL.generation, "")
    before = bench.client.hgetall(versions)
    result = mover(bench).run(to)
    assert (result.to, result.former, result.n_keys > 3) == (to, 1 - to, True)
    now = placed(bench)
    assert (now.partition, now.moves, now.moving) == (to, 1, None)
    assert bench.pane(model=now).numbers == pane_of([1, 2, 3]).numbers
    # The same state: results that were computed before the move are still valid.
    there = bench.store.keys.of(now).versions(MODEL.key, MODEL.generation, "")
    assert bench.client.hgetall(there) == before
    # Repeats of ids from before are repeats, with the configuration of before too.
    for model in (now, MODEL):
        [again] = bench.deliver(delivery("b1", [1, 2], model, slices={"site": ["a", "b"]}))
        assert (again.duplicate, again.status) == (True, "merged")
    bench.deliver(delivery("b3", [4], now))
    assert bench.merged("b3", now).status == "merged"
    assert bench.pane(model=now).numbers == pane_of([1, 2, 3, 4]).numbers
    # A mover that was stopped before it named the place says so too late.
    home = bench.store.keys.of_model(MODEL.key)
    late = [MODEL.key, 1 - to, 1]
    assert bench.store.run(home.partition, "set_place", [home.places], late) == 0
    assert placed(bench) == now
    # Nothing is left, and it may return.
    eventually(lambda: keys_at(bench, 1 - to) == [] and config_at(bench, 1 - to) is None)
    mover(bench).run(1 - to)
    back = placed(bench)
    assert (back.partition, back.moves) == (1 - to, 2)
    bench.deliver(delivery("b4", [5], back))
    assert bench.merged("b4", back).status == "merged"
    assert bench.pane(model=back).numbers == pane_of([1, 2, 3, 4, 5]).numbers
    assert bench.dead_letters(now) == bench.dead_letters(back) == []


@one_server
def test_an_empty_model_moves(bench, moved):
    _, to = moved
    bench.engine()
    assert mover(bench).run(to).n_keys == 0
    assert mover(bench).run(to).former == to  # it is there
    assert placed(bench).partition == to


@one_server
def test_a_model_that_was_made_again_moves(settings):
    """Its own moves begin again, those of its name do not: its home would go on to name the former partition."""
    with Bench(settings.replace(housekeeping_s=0.1, partitions=4)) as bench:
        _made_again(bench)


def _made_again(bench):
    home = bench.store.keys.partition_of(MODEL.key)
    one, two = (home + 1) % 4, (home + 2) % 4
    bench.put_model()
    bench.engine()
    mover(bench).run(one)
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    eventually(lambda: config_at(bench, home) is None)
    bench.run(registry.delete(placed(bench)))
    again = bench.run(registry.put(replace(MODEL, generation="", revision=0), None))
    assert (again.partition, again.moves) == (one, 0)
    bench.deliver(delivery("b1", [1], again))
    assert bench.merged("b1", again).status == "merged"
    mover(bench).run(two)
    now = placed(bench)
    assert (now.partition, now.moving) == (two, None)
    bench.deliver(delivery("b2", [2], again))
    assert bench.merged("b2", now).status == "merged"
    eventually(lambda: config_at(bench, one) is None)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1, 2]).numbers


@one_server
@pytest.mark.parametrize("n_confirmed", [0, 1])
def test_a_copy_is_replicated_before_the_former_data_are_given_up(
    bench, moved, n_confirmed, monkeypatch
):
    """Without a replica the move stops: where the model is frozen, then where it is live."""
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    with closing(Store(bench.settings.replace(durability="replicated"))) as store:
        await_replica, n_waited = store.await_replica, itertools.count()

        def confirmed(partition):
            if next(n_waited) >= n_confirmed:
                await_replica(partition)

        monkeypatch.setattr(store, "await_replica", confirmed)
        with pytest.raises(NotReplicated):
            ModelMove(store, MODEL.key, PATIENCE_S).run(to)
    assert config_at(bench, 1 - to).moving is not None
    assert (config_at(bench, to) is not None) == bool(n_confirmed)
    assert mover(bench).run(to).to == to
    assert bench.pane(model=placed(bench)).numbers == pane_of([1]).numbers


@one_server
def test_a_former_partition_that_has_lost_the_move_is_reported(bench, moved):
    """A server was replaced by a replica that did not know of the move."""
    model, to = moved
    bench.engine()

    def lose(name):
        if name == "name":
            keys = bench.store.keys.partition(1 - to)
            bench.client.hset(keys.models, MODEL.key, model.to_json())

    with pytest.raises(MoveInterrupted, match="lost writes"):
        mover(bench, on_step=lose).run(to)
    assert placed(bench) == model


@one_server
def test_a_second_entry_that_brings_the_model_changes_nothing(bench, moved):
    """Such as one of a store that was restored: its model has changed since, or was deleted."""
    _, to = moved
    bench.engine()
    mover(bench).run(to)
    now = placed(bench)
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    changed = bench.run(registry.put(replace(now, retention_s=86_400 * 400), now.revision))
    keys = bench.store.keys.partition(to)
    state = bench.client.hget(keys.moves, MODEL.key).decode()
    order = {"op": "move_in", "move": state.removeprefix("in "), "config": now.to_json().decode()}
    entry = move_order(MODEL.key, MODEL.generation, order)
    bench.client.xadd(keys.stream, entry.to_fields())
    eventually(lambda: bench.client.xlen(keys.stream) == 0)
    assert placed(bench) == changed
    assert bench.client.xlen(keys.dead_letters) == 0


@one_server
def test_without_a_worker_the_move_is_given_up(bench, moved):
    _, to = moved
    with pytest.raises(MoveInterrupted, match="no worker"):
        ModelMove(bench.store, MODEL.key, patience_s=0.05).run(to)
    assert placed(bench) == MODEL
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    assert bench.merged("b1").status == "merged"


@one_server
def test_a_move_without_room_for_its_copy_is_given_up(bench, moved, monkeypatch):
    """The model would accept nothing until there is room. A move that was interrupted can be cancelled in a full store, too."""
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    assert bench.merged("b1").status == "merged"

    def fill(name):
        if name == "copy":
            bench.client.config_set("maxmemory", 1)

    try:
        with pytest.raises(MoveRejected, match="no room"):
            mover(bench, on_step=fill).run(to)
        assert placed(bench) == MODEL
        bench.client.config_set("maxmemory", 0)
        change, n_changes = ModelMove._change, itertools.count()

        def killed(self, *given):
            if next(n_changes):
                raise Killed
            return change(self, *given)

        monkeypatch.setattr(ModelMove, "_change", killed)
        with pytest.raises(Killed):
            mover(bench).run(to)
        monkeypatch.setattr(ModelMove, "_change", change)
        assert keys_at(bench, to) != []
        bench.client.config_set("maxmemory", 1)
        assert mover(bench).cancel()
        assert placed(bench) == MODEL and keys_at(bench, to) == []
    finally:
        bench.client.config_set("maxmemory", 0)
    bench.deliver(delivery("b2", [2]))
    assert bench.merged("b2").status == "merged"
    mover(bench).run(to)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1, 2]).numbers


@one_server
def test_models_that_cannot_be_moved(bench, moved):
    model, to = moved
    bench.engine()
    for target in (-1, 2):
        with pytest.raises(MoveRejected, match="partitions 0 to 1"):
            mover(bench).run(target)
    with pytest.raises(MoveRejected, match="no model"):
        ModelMove(bench.store, "default/none", PATIENCE_S).run(to)
    bench.deliver(delivery("b1", [1], trick="raise"))
    assert bench.merged("b1").status == "dead_lettered"
    with pytest.raises(MoveRejected, match="not merged and not moved: 1 batches") as rejected:
        mover(bench).run(to)
    # The message has the command that helps.
    [letter] = dead_letters(bench.store, bench.store.keys.of(model).partition)
    name = f"{letter.partition}:{letter.id}"
    assert f"`python -m workers.ingest.parked replay {name}`" in str(rejected.value)
    for why, changes in (("import", {"importing": "x.y"}), ("stays", {"side_partitions": [1]})):
        other = bench.put_model(replace(MODEL, model=why, **changes))
        number = bench.store.keys.partition_of(other.key)
        with pytest.raises(MoveRejected, match=why):
            ModelMove(bench.store, other.key, PATIENCE_S).run(1 - number)
    assert placed(bench) == model
    assert discard(bench.store, letter.partition, name.partition(":")[2])
    mover(bench).run(to)
    assert placed(bench).partition == to


def test_the_message_about_many_batches_names_some_of_them():
    names = [f"3:dead-{number}-0" for number in range(model_move.MAX_NAMED + 5)]
    found = model_move._left_behind(names)
    assert names[model_move.MAX_NAMED - 1] in found and names[model_move.MAX_NAMED] not in found
    assert "for the other 5" in found
