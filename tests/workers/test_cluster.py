"""A cluster: masters that die or hang, slots that move, and URLs that name the wrong kind of store."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import threading
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
import redis
from redis.crc import key_slot

from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.properties import StoreMismatch
from tests.clusters import StoreCluster, move_slot, name_of
from tests.stores import StoreServer, replicas_have_everything
from tests.workers.driving import MODEL, Bench, delivery, eventually
from tests.workers.ledger import pane_of
from tests.workers.test_compute import EVER, KINDS, SumsQuery

# The other server program runs the scripts of the store in the other files.
pytestmark = pytest.mark.one_server


@contextmanager
def cluster_of(binary, directory, **options):
    cluster = StoreCluster(binary, directory, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_a_master_dies_and_its_replica_continues(settings, server_binary, tmp_path):
    with cluster_of(server_binary, tmp_path / "c", n_replicas=1) as cluster:
        settings = settings.replace(redis_url=cluster.url, namespace="death", socket_timeout_s=2.5)
        with Bench(settings, ingest_deadline_s=1.0) as bench:
            bench.put_model()
            bench.engine()
            keys = bench.store.keys.of_model(MODEL.key)
            bench.deliver(delivery("b1", [1]))
            assert bench.merged("b1").status == "merged"
            master = cluster.master_of(keys.stream)
            eventually(lambda: replicas_have_everything(master))
            master.kill()
            bench.deliver_until_taken(delivery("b2", [2]))
            assert bench.merged("b2").status == "merged"
            assert cluster.master_of(keys.stream) is not master
            # The test's own client learns of the failover by an error, as every client does.
            with pytest.raises(redis.ConnectionError):
                bench.pane()
            assert bench.pane().numbers == pane_of([1, 2]).numbers
            # The same id again, after the failover: known, and counted once.
            bench.deliver_until_taken(delivery("b1", [1]))
            assert bench.pane().numbers == pane_of([1, 2]).numbers
            assert bench.dead_letters() == []


def test_queries_are_computed_on_a_cluster(settings, server_binary, tmp_path):
    """Threads that wait for queries name several keys in one command, which must be in one slot."""
    with cluster_of(server_binary, tmp_path / "q") as cluster:
        settings = settings.replace(redis_url=cluster.url, namespace="queries")
        with Bench(settings) as bench:
            bench.put_model()
            engine = bench.engine(kinds=KINDS)
            bench.deliver(delivery("b1", [1, 2]))
            assert bench.merged("b1").status == "merged"
            found = bench.run(bench.inbox.ask(SumsQuery(), MODEL, EVER))
            assert json.loads(found.body)["total"] == 3
            engine._serving.wake()
            assert engine.is_alive and not engine.store.state.problem


def test_slots_move_while_batches_arrive(settings, server_binary, tmp_path):
    """Keys go to another master one by one, as tools of clusters do it."""
    with cluster_of(server_binary, tmp_path / "c", n_masters=2) as cluster:
        settings = settings.replace(redis_url=cluster.url, namespace="moves")
        with Bench(settings) as bench:
            bench.put_model()
            bench.engine()
            keys = bench.store.keys.of_model(MODEL.key)
            numbers = itertools.count(1)
            sent = []

            def send():
                number = next(numbers)
                bench.deliver_until_taken(delivery(f"b{number}", [number]))
                sent.append(number)

            send()
            for _ in range(2):
                mover = threading.Thread(target=move_slot_of, args=(cluster, keys.stream))
                mover.start()
                while mover.is_alive():
                    send()
                send()
            for number in sent:
                assert bench.merged(f"b{number}").status == "merged"
            assert bench.pane().numbers == pane_of(sent).numbers
            assert bench.dead_letters() == []


def test_a_master_that_hangs_does_not_stop_the_others(settings, server_binary, tmp_path):
    with cluster_of(server_binary, tmp_path / "c", n_masters=2) as cluster:
        settings = settings.replace(redis_url=cluster.url, namespace="hang", partitions=8)
        with Bench(settings, ingest_deadline_s=0.5) as bench:
            of_first, of_second = (model_on(bench, cluster, node) for node in cluster.nodes)
            bench.engine()
            os.kill(cluster.nodes[0].pid, signal.SIGSTOP)
            try:
                bench.deliver(delivery("b1", [1], of_second))
                assert bench.merged("b1", of_second).status == "merged"
            finally:
                os.kill(cluster.nodes[0].pid, signal.SIGCONT)
            bench.deliver_until_taken(delivery("b2", [2], of_first))
            assert bench.merged("b2", of_first).status == "merged"


def test_a_cluster_behind_the_url_of_a_server_is_rejected(settings, server_binary, tmp_path):
    with cluster_of(server_binary, tmp_path / "c") as cluster:
        plain = settings.replace(redis_url=f"redis://127.0.0.1:{cluster.nodes[0].port}/0")
        with closing(Store(plain)) as store, pytest.raises(StoreMismatch, match=r"redis\+cluster"):
            store.fix_properties()
        with pytest.raises(StoreMismatch, match=r"redis\+cluster"):
            asyncio.run(open_inbox(plain))


def test_a_server_behind_the_url_of_a_cluster_is_rejected(settings, server_binary, tmp_path):
    server = StoreServer(server_binary, tmp_path / "s")
    server.listens = True
    server.start()
    try:
        wrong = settings.replace(redis_url=f"redis+cluster://127.0.0.1:{server.port}")
        with closing(Store(wrong)) as store, pytest.raises(StoreMismatch, match="redis://"):
            store.fix_properties()
        with pytest.raises(StoreMismatch, match="redis://"):
            asyncio.run(open_inbox(wrong))
    finally:
        server.close()


async def open_inbox(settings):
    inbox = Inbox(settings)
    try:
        await inbox.open()
    finally:
        await inbox.close()


def model_on(bench, cluster, node):
    """Declare a model whose partition is on a node."""
    for number in itertools.count():
        model = replace(MODEL, model=f"m{number}")
        if cluster.master_of(bench.store.keys.of(model).stream) is node:
            return bench.put_model(model)
    raise AssertionError


def move_slot_of(cluster, key):
    """Move the slot of a key from the master that holds it to the other one."""
    slot = key_slot(key.encode())
    source = next(node for node in cluster.nodes if holds(node, slot, name_of(node)))
    target = next(node for node in cluster.nodes if node is not source)
    move_slot(slot, source, target)


def holds(node, slot, node_id):
    with node.client() as client:
        slots = client.execute_command("CLUSTER", "SLOTS")
    return any(
        low <= slot <= high and master[2].decode() == node_id for low, high, master, *_ in slots
    )
