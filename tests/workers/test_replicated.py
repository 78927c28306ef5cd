"""Durability `replicated`: a batch is acknowledged once a replica has it, and not before."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError
from calibrant_server.workers.store import script
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.script import NotReplicated
from tests.stores import StoreServer, follow
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.ledger import pane_of

pytestmark = pytest.mark.one_server


@pytest.fixture
def pair(server_binary, tmp_path, monkeypatch):
    """A master that needs a replica to write, and its replica."""
    monkeypatch.setattr(script, "REPLICA_WAIT_MS", 200)
    servers = [
        # A replica that hangs still counts as one for the master: only its confirmation tells.
        StoreServer(
            server_binary,
            tmp_path / name,
            repl_diskless_sync_delay="0",
            min_replicas_to_write="1",
            min_replicas_max_lag="600",
        )
        for name in ("first", "second")
    ]
    for each in servers:
        each.listens = True
        each.start()
    first, second = servers
    follow(second, first)
    yield first, second
    for each in servers:
        each.close()


def replicated(settings, server, namespace):
    return settings.replace(
        redis_url=server.url, namespace=namespace, durability="replicated", socket_timeout_s=2.5
    )


def receipt(bench, batch):
    async def handed_over():
        return await bench.inbox.enqueue(batch)

    return bench.run(handed_over())


def test_a_batch_waits_for_the_replica_and_counts_once(settings, pair):
    first, second = pair
    with Bench(replicated(settings, first, "waits"), ingest_deadline_s=0.5) as bench:
        assert bench.inbox.durability == "replicated"
        bench.put_model()
        assert not receipt(bench, delivery("b1", [1])).duplicate
        os.kill(second.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailableError, match="replica"):
                receipt(bench, delivery("b2", [2]))
            # Its record is there, and the master alone has it: not acknowledged either.
            with pytest.raises(StoreUnavailableError, match="replica"):
                receipt(bench, delivery("b2", [2]))
        finally:
            os.kill(second.pid, signal.SIGCONT)
        assert receipt(bench, delivery("b2", [2])).duplicate
        bench.engine()
        assert {bench.merged(each).status for each in ("b1", "b2")} == {"merged"}
        assert bench.pane().numbers == pane_of([1, 2]).numbers


def test_what_is_acknowledged_survives_the_master(settings, pair):
    first, second = pair
    with Bench(replicated(settings, first, "survives"), ingest_deadline_s=0.5) as bench:
        bench.put_model()
        for number in range(1, 6):
            receipt(bench, delivery(f"b{number}", [number]))
        stream = bench.store.keys.of_model(MODEL.key).stream
        first.kill()
        with second.client() as client:
            client.replicaof("NO", "ONE")
            assert client.xlen(stream) == 5


@pytest.mark.parametrize("needed", ["0", "1"])
def test_without_replicas_the_service_does_not_start(settings, start_store, needed):
    server = start_store(min_replicas_to_write=needed)
    with pytest.raises(StoreMismatch, match=f"0 replicas and min-replicas-to-write {needed}"):
        asyncio.run(open_once(replicated(settings, server, "alone")))


def test_a_master_that_writes_alone_is_rejected(settings, pair):
    first, _ = pair
    with first.client() as client:
        client.config_set("min-replicas-to-write", 0)
    with pytest.raises(StoreMismatch, match="1 replicas and min-replicas-to-write 0"):
        asyncio.run(open_once(replicated(settings, first, "alone")))


async def open_once(settings):
    inbox = Inbox(settings)
    try:
        await inbox.open()
    finally:
        await inbox.close()


class TestConfigurations:
    """A model whose creation was acknowledged is found after the loss of any one server."""

    @pytest.fixture
    def bench(self, settings, pair):
        changed = replicated(settings, pair[0], "models").model_copy(update={"partitions": 3})
        with Bench(changed, ingest_deadline_s=0.5) as bench:
            yield bench

    @pytest.fixture
    def registry(self, bench):
        return Registry(bench.inbox.client, bench.inbox.keys, "replicated")

    def test_each_change_waits_for_the_replica(self, bench, pair, registry):
        config = bench.run(registry.put(replace(MODEL, model="first"), None))
        os.kill(pair[1].pid, signal.SIGSTOP)
        try:
            for change in (
                registry.put(replace(MODEL, model="second"), None),
                registry.put(replace(config, label_horizon_s=3600), config.revision),
                registry.confirm(config),
                registry.delete(replace(config, revision=config.revision + 1)),
            ):
                with pytest.raises(NotReplicated):
                    bench.run(change)
        finally:
            os.kill(pair[1].pid, signal.SIGCONT)

    def test_a_failover_that_undoes_a_model_is_noticed(self, bench, registry):
        config = bench.run(registry.put(replace(MODEL, model="first"), None))
        bench.client.hdel(bench.store.keys.of(config).models, config.key)
        with pytest.raises(NotReplicated):
            bench.run(registry.confirm(config))
