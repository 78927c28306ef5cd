"""The servers that other tests rest on: real, durable through a kill, set up as asked."""

from __future__ import annotations

import pytest

from tests.stores import StoreServer


def test_keeps_acknowledged_writes_through_a_kill(store_server: StoreServer) -> None:
    before = store_server.pid
    with store_server.client() as client:
        client.xadd("q", {"b": b"\x00\xff"})
    store_server.restart()
    assert store_server.pid != before
    with store_server.client() as client:
        assert [fields for _, fields in client.xrange("q")] == [{b"b": b"\x00\xff"}]


@pytest.mark.store(appendfsync="always", maxmemory="32mb")
def test_takes_directives(store_server: StoreServer) -> None:
    with store_server.client() as client:
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
        assert client.config_get("maxmemory") == {"maxmemory": str(32 * 2**20)}
