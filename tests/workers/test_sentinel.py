"""A master that sentinels name: after they promote its replica, the same processes continue."""

from __future__ import annotations

import gc
import subprocess
import warnings
from pathlib import Path

import pytest
import redis

from calibrant_server.workers.health import read_health
from tests.ports import reserved_port
from tests.stores import StoreServer, follow, replicas_have_everything
from tests.waiting import eventually
from tests.workers.driving import Bench, delivery
from tests.workers.ledger import pane_of

pytestmark = pytest.mark.one_server

N_SENTINELS = 3
# A busy machine may pause a master for seconds: it must not be demoted before the test kills it.
DOWN_AFTER_MS = 8000


@pytest.fixture
def watched(server_binary, tmp_path):
    """A master and a replica, and the URL of three sentinels that watch them."""
    servers = [
        StoreServer(server_binary, tmp_path / name, repl_diskless_sync_delay="0")
        for name in ("first", "second")
    ]
    sentinels = []
    try:
        for each in servers:
            each.listens = True
            each.start()
        first, second = servers
        follow(second, first)
        ports = [reserved_port() for _ in range(N_SENTINELS)]
        sentinels += [
            start_sentinel(server_binary, tmp_path / f"sentinel-{port}", port, first.port)
            for port in ports
        ]
        for port in ports:
            eventually(lambda port=port: knows_all(port))
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield first, second, f"redis+sentinel://{hosts}/mymaster"
    finally:
        for each in sentinels:
            each.kill()
            each.wait()
        for each in servers:
            each.close()
        # redis-py leaves a connection open whose request to a sentinel is cancelled; it is closed when it is collected.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def start_sentinel(binary: str, directory: Path, port: int, master_port: int):
    directory.mkdir()
    file = directory / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor mymaster 127.0.0.1 {master_port} 2\n"
        f"sentinel down-after-milliseconds mymaster {DOWN_AFTER_MS}\n"
        "sentinel failover-timeout mymaster 10000\n"
    )
    with (directory / "log").open("wb") as log:
        return subprocess.Popen([binary, str(file), "--sentinel"], stdout=log, stderr=log)


def knows_all(port: int) -> bool:
    """Whether a sentinel knows the replica and the other sentinels."""
    try:
        with redis.Redis("127.0.0.1", port) as client:
            found = client.sentinel_masters()["mymaster"]
    except (redis.ConnectionError, KeyError):
        return False
    return found["num-slaves"] == 1 and found["num-other-sentinels"] == N_SENTINELS - 1


def test_after_sentinels_promote_a_replica_the_same_processes_continue(settings, watched):
    first, second, url = watched
    settings = settings.replace(redis_url=url, namespace="sentinel", socket_timeout_s=2.5)
    with Bench(settings, ingest_deadline_s=0.5) as bench:
        bench.put_model()
        engine = bench.engine()
        bench.deliver_until_taken(delivery("b1", [1]))
        assert bench.merged("b1").status == "merged"
        eventually(lambda: replicas_have_everything(first))
        first.kill()
        bench.deliver_until_taken(delivery("b2", [2]))
        assert bench.merged("b2").status == "merged"
        with second.client() as client:
            assert client.info("replication")["role"] == "master"
        # The test's own connection still leads to the old master.
        eventually(lambda: numbers(bench) == pane_of([1, 2]).numbers)
        assert bench.dead_letters() == []
        host = engine._leases.name.partition(":")[0]
        eventually(lambda: not read_health(bench.store, host).is_red)

        # The old master returns as a replica and does not serve.
        first.start()
        eventually(lambda: role(first) == "slave")
        bench.deliver_until_taken(delivery("b3", [3]))
        assert bench.merged("b3").status == "merged"
        eventually(lambda: numbers(bench) == pane_of([1, 2, 3]).numbers)


def numbers(bench):
    try:
        return bench.pane().numbers
    except (redis.ConnectionError, redis.TimeoutError):
        return None


def role(server):
    with server.client() as client:
        return client.info("replication")["role"]
