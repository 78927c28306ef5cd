"""Connections to the master that sentinels name: each new connection asks them where it is.

After a failover the pool closes its connections (`connection.py`), and the next ones lead to the new master.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from calibrant_server.workers.store.addresses import StoreAddress

_OF_A_SOCKET = ("protocol", "socket_timeout", "socket_connect_timeout")


class _Master:
    """The part of a connection pool that a connection of redis-py calls. Requests to sentinels are rare: none stays connected."""

    is_master = True
    check_connection = False

    def __init__(self, address: StoreAddress, options: Mapping[str, Any]):
        of_a_socket = {name: options[name] for name in _OF_A_SOCKET if name in options}
        self.name = address.master
        self.hosts = address.hosts
        self.options = {**of_a_socket, "retry": options["retry"], **address.sentinel_options}

    def get_master_address(self) -> Any:
        """Return host and port of the master."""
        requested = redis.sentinel.Sentinel(self.hosts, sentinel_kwargs=self.options)
        try:
            return requested.discover_master(self.name)
        finally:
            for each in requested.sentinels:
                each.close()


class _AsyncMaster(_Master):
    async def get_master_address(self) -> Any:
        """Return host and port of the master."""
        requested = redis.asyncio.sentinel.Sentinel(self.hosts, sentinel_kwargs=self.options)
        try:
            return await requested.discover_master(self.name)
        finally:
            for each in requested.sentinels:
                await each.aclose()


def with_sentinels(address: StoreAddress, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a blocking connection whose host sentinels name."""
    return _managed(
        options,
        _Master(address, options),
        redis.sentinel.SentinelManagedConnection,
        redis.sentinel.SentinelManagedSSLConnection,
    )


def with_async_sentinels(address: StoreAddress, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a connection of the event loop whose host sentinels name."""
    return _managed(
        options,
        _AsyncMaster(address, options),
        redis.asyncio.sentinel.SentinelManagedConnection,
        redis.asyncio.sentinel.SentinelManagedSSLConnection,
    )


def _managed(options: Mapping[str, Any], master: _Master, plain: type, tls: type) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name not in ("host", "port")}
    return {
        **kept,
        "connection_class": tls if "connection_class" in options else plain,
        "connection_pool": master,
    }
