"""The health of the workers, as a container and an operator see it."""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import replace

import pytest

from calibrant_server.workers.health import Health, main, read_health
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from tests.stores import StoreServer


def test_tells_who_lives_here_and_what_waits(store_server: StoreServer) -> None:
    store = Store(EngineSettings(redis_url=store_server.url, partitions=2))
    client, keys = store.client, store.keys

    def seen() -> Health:
        return replace(read_health(store, "one"), merge_lag_s=0.0)

    assert seen() == Health(0, 0, partitions_without_lease=2)

    now = client.time()[0]
    client.zadd(keys.workers, {"one:7:ab": now, "one-two:8:cd": now, "one:9:ef": now - 3600})
    for number, waiting in ((0, 100), (1, 20)):
        partition = keys.partition(number)
        client.xadd(partition.stream, {"b": "x"})
        client.incrby(partition.bytes_in, 1000)
        client.hset(partition.cursor, "out", 1000 - waiting)
    client.xadd(keys.partition(1).dead_letters, {"why": "undecodable"})
    health = seen()
    assert health == Health(
        workers=2,
        workers_here=1,
        backlog_entries=2,
        backlog_bytes=120,
        dead_letters=1,
        parked_entries=0,
        unsealed_models=0,
        partitions_without_lease=2,
    )
    assert not health.is_red and read_health(store, "two").is_red
    client.hset(keys.partition(0).unsealable, "t/m|g", "a pane is damaged")
    assert seen() == replace(health, unsealed_models=1) and read_health(store, "one").is_red
    client.delete(keys.partition(0).unsealable)
    client.xadd(keys.partition(1).parked, {"why": "rejected"})
    assert seen() == replace(health, parked_entries=1) and read_health(store, "one").is_red
    store.close()


def test_a_worker_is_ready_whatever_waits_for_an_operator(
    store_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIBRANT_REDIS_URL", store_server.url)
    monkeypatch.setenv("CALIBRANT_PARTITIONS", "2")
    with closing(Store(EngineSettings())) as store:
        client, keys = store.client, store.keys
        assert main(["--here"]) == main() == 1
        client.zadd(keys.workers, {f"{socket.gethostname()}:7:ab": client.time()[0]})
        assert main(["--here"]) == main() == 0
        client.xadd(keys.partition(1).parked, {"why": "rejected"})
        assert (main(["--here"]), main()) == (0, 1)
        client.zadd(keys.workers, {f"{socket.gethostname()}:7:ab": client.time()[0] - 3600})
        assert main(["--here"]) == 1
