"""The restore of docs/operations.md: from a snapshot to a store that is durable again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest
import redis

from tests.stores import SERVERS, StoreServer


def saved_copy(server: StoreServer) -> None:
    with server.client() as client:
        before = client.lastsave()
        time.sleep(1.1)  # the server tells whole seconds
        client.bgsave()
        while client.lastsave() == before:
            time.sleep(0.05)


def wait_for_rewrite(client: redis.Redis) -> None:
    while True:
        result = client.info("persistence")
        if not result["aof_rewrite_in_progress"] and not result.get("aof_rewrite_scheduled"):
            assert result["aof_last_bgrewrite_status"] == "ok"
            return
        time.sleep(0.05)


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_snapshot_becomes_a_durable_store_again(
    kind: str, start_store: Callable[..., StoreServer]
) -> None:
    binary = SERVERS[kind]
    if binary is None:
        pytest.skip(f"{kind} is not installed here")
    original = start_store(binary)
    with original.client() as client:
        client.xadd("q", {"b": "waiting"})
        client.hset("state", "part", b"\x00\x01")
    saved_copy(original)
    original.kill()

    restored = start_store(binary)
    restored.kill()
    shutil.rmtree(restored.directory / "appendonlydir")
    shutil.copy(original.directory / "dump.rdb", restored.directory)
    restored.options["appendonly"] = "no"
    restored.start()
    with restored.client() as client:
        client.config_set("appendonly", "yes")
        wait_for_rewrite(client)
        client.set("written", "after the restore")
    restored.options["appendonly"] = "yes"
    restored.restart()
    with restored.client() as client:
        assert client.xlen("q") == 1
        assert client.hget("state", "part") == b"\x00\x01"
        assert client.get("written") == b"after the restore"
