"""Connection pools that give up a server which lost its role.

After a failover the store's name or address leads to another server, but pooled connections stay with the old one, which
rejects every write, or with a machine that is gone. So a connection that meets such an error makes its pool close all
idle connections, and those in use when they are returned. The next request connects again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import RedisError

from calibrant_server.workers.store.transient_errors import is_of_the_connection


class _Watched:
    """A connection that notes that its server no longer serves."""

    gave_up = False

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except (RedisError, OSError) as error:
            self.gave_up |= is_of_the_connection(error)
            raise


class _WatchedAsync:
    gave_up = False

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except (RedisError, OSError) as error:
            self.gave_up |= is_of_the_connection(error)
            raise


@lru_cache
def _watched(kind: type, watch: type) -> type:
    return type(f"Watched{kind.__name__}", (watch, kind), {})


class FailoverPool(redis.ConnectionPool):  # type: ignore[misc]
    """Pool of a blocking client."""

    def __init__(self, connection_class: type = redis.Connection, **options: Any):
        super().__init__(connection_class=_watched(connection_class, _Watched), **options)

    def release(self, connection: Any) -> None:
        """Return a connection, and drop all if its server no longer serves."""
        if connection.gave_up:
            connection.gave_up = False
            with self._lock:
                for each in self._in_use_connections:
                    each.mark_for_reconnect()
                self.disconnect(inuse_connections=False)
        super().release(connection)


class AsyncFailoverPool(redis.asyncio.BlockingConnectionPool):  # type: ignore[misc]
    """Pool of the event loop's client; calls above the number of connections wait."""

    def __init__(
        self,
        *arguments: Any,
        connection_class: type = redis.asyncio.Connection,
        **options: Any,
    ):
        watched = _watched(connection_class, _WatchedAsync)
        super().__init__(*arguments, connection_class=watched, **options)

    async def release(self, connection: Any) -> None:
        """Return a connection, and drop all if its server no longer serves."""
        if connection.gave_up:
            connection.gave_up = False
            for each in self._in_use_connections:
                each.mark_for_reconnect()
            await self.disconnect(inuse_connections=False)
        await super().release(connection)
