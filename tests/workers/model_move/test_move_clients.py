"""Clients of a model while it moves: batches count once, reads find it, changes wait."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace

import pytest

from calibrant_server.workers.ingest.errors import ModelMismatchError
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.lifecycle import housekeeping
from calibrant_server.workers.lifecycle.model_move import ModelMove, MoveRejected
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.model_places import ConfigReader
from calibrant_server.workers.store.registry import Registry
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery, eventually
from tests.workers.ledger import pane_of
from tests.workers.model_move.moving import Client, Killed, config_at, keys_at, mover, placed
from tests.workers.test_cluster import cluster_of

# One test uses both server programs; the scripts are the same for the others.
one_server = pytest.mark.one_server


@one_server
def test_each_batch_counts_once_while_clients_post(bench, moved):
    _, to = moved
    bench.engine()
    clients = [Client(bench.settings, name) for name in "xy"]
    for each in clients:
        each.start()
    try:
        for target in (to, 1 - to, to):
            eventually(lambda: all(len(each.sent) > 20 for each in clients))
            eventually(lambda target=target: config_at(bench, target) is None)
            mover(bench).run(target)
    finally:
        for each in clients:
            each.has_ended.set()
            each.join()
    assert [each.error for each in clients] == [None, None]
    now = placed(bench)
    sent = [pair for each in clients for pair in each.sent]
    assert {bench.merged(name, now).status for name, _ in sent} == {"merged"}
    assert bench.pane(model=now).numbers == pane_of([number for _, number in sent]).numbers
    assert bench.dead_letters(now) == []
    assert now.partition == to and now.moves == 3


@one_server
def test_a_model_moves_between_servers_of_a_cluster(settings, server_binary, tmp_path):
    """While a client posts."""
    with cluster_of(server_binary, tmp_path / "c", n_masters=2) as cluster:
        settings = settings.replace(
            redis_url=cluster.url, namespace="across", partitions=8, housekeeping_s=0.1
        )
        with Bench(settings) as bench:
            bench.put_model()
            bench.engine()
            keys = bench.store.keys
            former = keys.of_model(MODEL.key)
            to = next(
                number
                for number in range(8)
                if cluster.master_of(keys.partition(number).stream)
                is not cluster.master_of(former.stream)
            )
            client = Client(settings, "c")
            client.start()
            try:
                eventually(lambda: len(client.sent) > 10)
                ModelMove(bench.store, MODEL.key, PATIENCE_S).run(to)
                eventually(lambda: config_at(bench, former.partition) is None)
                n_sent = len(client.sent)
                eventually(lambda: len(client.sent) > n_sent + 10)
            finally:
                client.has_ended.set()
                client.join()
            assert client.error is None
            now = placed(bench)
            assert (now.partition, now.moves) == (to, 1)
            assert {bench.merged(name, now).status for name, _ in client.sent} == {"merged"}
            assert bench.pane(model=now).numbers == pane_of([n for _, n in client.sent]).numbers
            assert bench.dead_letters(now) == []
            # Nothing is left on the former server.
            eventually(lambda: keys_at(bench, former.partition) == [])


@one_server
def test_a_process_that_remembers_the_former_partition_reads_the_new_one_once_it_is_named(
    bench, moved
):
    """The mover was killed before its last step: the former partition still has the configuration of before."""
    _, to = moved
    bench.engine()
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    reader = ConfigReader(bench.client, bench.store.keys)
    assert reader.read(MODEL.key) == bench.run(registry.get("default", "m")) == MODEL
    bench.deliver(delivery("b0", [2]))
    assert bench.merged("b0").status == "merged"
    seen = []

    def kill(name):
        if name == "copy":
            seen.append(config_at(bench, 1 - to))
            bench.run(bench.inbox.state(seen[0], ""))
        if name == "leave":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    bench.deliver(delivery("b1", [1]))
    # A response from during the move is not taken for unchanged.
    seen.append(config_at(bench, 1 - to))
    bench.run(bench.inbox.state(seen[1], ""))
    assert [bench.run(bench.inbox.unchanged_state(each, "")) for each in seen] == [None, None]
    now = placed(bench)
    assert bench.merged("b1", now).status == "merged"
    assert reader.read(MODEL.key) == bench.run(registry.get("default", "m")) == now
    changed = replace(now, retention_s=86_400 * 400)
    assert bench.run(registry.put(changed, now.revision)).partition == to


@one_server
def test_a_request_that_began_before_the_move_reads_everything_where_the_model_was(
    bench, moved, monkeypatch
):
    """Without the names of its files, old days would be read as empty: a wrong result under the name of a right state."""
    _, to = moved
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 1e6)
    former = bench.store.keys.partition(1 - to)
    of = (MODEL.key, MODEL.generation)
    bench.client.hset(former.cold_days(*of), "86400", "day")
    bench.client.hset(former.current_maps, mapping={MODEL.key: "map", "default/o": "other"})
    bench.engine()
    mover(bench).run(to)
    assert bench.client.hgetall(former.cold_days(*of)) == {b"86400": b"day"}
    assert bench.client.hget(former.current_maps, MODEL.key) == b"map"
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 0)
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert keys_at(bench, 1 - to) == []
    assert bench.client.hkeys(former.current_maps) == [b"default/o"]
    there = bench.store.keys.partition(to)
    assert bench.client.hgetall(there.cold_days(*of)) == {b"86400": b"day"}
    assert bench.client.hget(there.current_maps, MODEL.key) == b"map"


@one_server
def test_a_model_does_not_return_while_its_former_data_are_removed(bench, moved, monkeypatch):
    _, to = moved
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 1e6)
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    mover(bench).run(to)
    with pytest.raises(MoveRejected, match="two minutes"):
        mover(bench).run(1 - to)
    # Until then, a request that has begun before reads the state of before.
    assert bench.pane().numbers == pane_of([1]).numbers
    with closing(Store(bench.settings)) as store:
        assert ConfigReader(store.client, store.keys).read(MODEL.key).partition == to


def test_changes_of_the_model_wait_for_the_move(bench, moved):
    """Settings, maps, orders, deletion: each is rejected for now, and works afterwards."""
    _, to = moved
    bench.engine()
    registry = Registry(bench.inbox.client, bench.inbox.keys)

    def kill(name):
        if name == "copy":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    config = bench.run(registry.get("default", "m"))

    async def attempts(inbox, config):
        calls = [
            inbox.order(config, {"op": "test", "about": "x"}),
            inbox.event_halves.exchange(config, "e", False, b"half"),
            inbox.maps.add(config, "i", b"{}", b"{}"),
            registry.put(replace(config, retention_s=86_400 * 400), config.revision),
            registry.delete(config),
        ]
        return [await each for each in await _gathered(calls)]

    async def _gathered(calls):
        found = []
        for each in calls:
            result = await asyncio.gather(each, return_exceptions=True)
            found.append(asyncio.sleep(0, result[0]))
        return found

    async def run(config):
        async with Inbox(bench.settings, ingest_deadline_s=0.05) as inbox:
            return await attempts(inbox, config)

    results = bench.run(run(config))
    assert [isinstance(each, Exception) for each in results] == [True] * 5
    assert all("moved" in str(each) for each in results), results
    mover(bench).run(to)
    now = placed(bench)
    results = bench.run(run(now))
    # The deletion names the revision before the change.
    assert [type(each).__name__ for each in results if isinstance(each, Exception)] == [
        "RevisionConflict"
    ]


@one_server
def test_a_creation_by_an_old_placement_is_rejected(bench, moved):
    """A process that was stopped between placing a model and creating it, while the model was created, moved and deleted."""
    _, to = moved
    bench.engine()
    mover(bench).run(to)
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    bench.run(registry.delete(placed(bench)))
    eventually(lambda: config_at(bench, 1 - to) is None and config_at(bench, to) is None)
    late = replace(MODEL, generation="", revision=0)
    number = 1 - to

    class Late:
        async def place(self, model):
            return number

    bench.inbox._appender._placement = Late()
    with pytest.raises(ModelMismatchError):
        bench.deliver(delivery("b1", [1], late, create=True))
    assert config_at(bench, number) is None
