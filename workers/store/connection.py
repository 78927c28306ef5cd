"""Connection to the Redis store: one server, a cluster, or the master that sentinels name.

Retries of the client library are off: it would repeat writes silently. Callers repeat what is safe to repeat.

After a failover the store's name or address leads to another server, but pooled connections stay with the old one, which
rejects every write, or with a machine that is gone. So a call that meets such an error closes the pool's waiting connections.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import RedisError

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.addresses import StoreAddress, parse_address
from calibrant_server.workers.store.cluster import AsyncClusterClient, ClusterClient, Node
from calibrant_server.workers.store.day_file import day_files
from calibrant_server.workers.store.file_store import require_setting
from calibrant_server.workers.store.key_names import SCHEMA, Keys
from calibrant_server.workers.store.properties import (
    StoreMismatch,
    check_kind,
    check_kind_async,
    check_properties,
    durability_of_store,
    fixed_properties,
    words,
)
from calibrant_server.workers.store.script import digest_of, run_text, scripts
from calibrant_server.workers.store.sentinel import with_async_sentinels, with_sentinels
from calibrant_server.workers.store.transient_errors import StoreState, is_of_the_connection

# A server on the same network accepts a connection within milliseconds, or not at all.
CONNECT_TIMEOUT_S = 1.0
# Wait for a connection of the pool. Calls release theirs within the socket's timeout.
POOL_WAIT_S = 5.0
# Of the event loop of one process. Appends are sent in groups and replies are read by one reader, so that a busy process uses a few.
MAX_CONNECTIONS = 64


def _options(settings: EngineSettings) -> dict[str, Any]:
    return {
        "protocol": 2,
        "socket_timeout": settings.socket_timeout_s,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "retry_on_timeout": False,
        "health_check_interval": 0,
        "driver_info": _DRIVER,
    }


# Shared, because the client library looks up its own version for each connection: a millisecond.
_DRIVER = DriverInfo()


class ServerClient(redis.Redis):  # type: ignore[misc]
    """Blocking client of one server; after a failure that concerns the server, waiting connections are made again."""

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command."""
        try:
            return super().execute_command(*command, **options)
        except (RedisError, OSError) as error:
            if _is_away([error]):
                self.connection_pool.disconnect(inuse_connections=False)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """Return a pipeline."""
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class _Pipeline(redis.client.Pipeline):  # type: ignore[misc]
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        found: list[Any] = []
        try:
            found = super().execute(raise_on_error)
            return found
        except (RedisError, OSError) as error:
            found = [error]
            raise
        finally:
            if _is_away(found):
                self.connection_pool.disconnect(inuse_connections=False)


class AsyncServerClient(redis.asyncio.Redis):  # type: ignore[misc]
    """Client of one server for the event loop, which connects again likewise."""

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command."""
        try:
            return await super().execute_command(*command, **options)
        except (RedisError, OSError, RuntimeError) as error:
            raise await _noted(error, self.connection_pool) from None

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """Return a pipeline."""
        return _AsyncPipeline(
            self.connection_pool, self.response_callbacks, transaction, shard_hint
        )


class _AsyncPipeline(redis.asyncio.client.Pipeline):  # type: ignore[misc]
    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        try:
            found: list[Any] = await super().execute(raise_on_error)
        except (RedisError, OSError, RuntimeError) as error:
            raise await _noted(error, self.connection_pool) from None
        if _is_away(found):
            await self.connection_pool.disconnect(inuse_connections=False)
        return found


async def _noted(error: Exception, pool: Any) -> Exception:
    """Return an error to raise, after the connections of its pool were closed if they lead to a server that no longer serves."""
    # uvloop's, where asyncio raises ConnectionResetError: the server has closed the connection meanwhile.
    if isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        error = StoreConnectionError("the connection was closed")
    if _is_away([error]):
        await pool.disconnect(inuse_connections=False)
    return error


def _is_away(found: Iterable[Any]) -> bool:
    """Whether replies or errors say that the server no longer serves."""
    return any(
        isinstance(each, RedisError | OSError) and is_of_the_connection(each) for each in found
    )


def connect(settings: EngineSettings) -> Any:
    """Return a blocking client. Threads can share it; each call uses its own connection.

    Not typed: the library's types leave open whether replies are text, and here they are always bytes.
    """
    address = _address(settings)
    retry = redis.retry.Retry(NoBackoff(), 0)
    options = {**redis.connection.parse_url(address.url), **_options(settings), "retry": retry}
    if address.kind == "sentinel":
        options = with_sentinels(address, options)

    def client(place: Node | None = None) -> Any:
        at = {} if place is None else {"host": place[0], "port": place[1]}
        return ServerClient.from_pool(redis.ConnectionPool(**options | at))

    return ClusterClient(address.hosts, client) if address.kind == "cluster" else client()


def connect_async(settings: EngineSettings) -> Any:
    """Return a client for the event loop; calls above the number of connections wait."""
    address = _address(settings)
    options = {
        **redis.asyncio.connection.parse_url(address.url),
        **_options(settings),
        "retry": redis.asyncio.retry.Retry(NoBackoff(), 0),
    }
    if address.kind == "sentinel":
        options = with_async_sentinels(address, options)
    pool = {"max_connections": MAX_CONNECTIONS, "timeout": POOL_WAIT_S}

    def client(place: Node | None = None) -> Any:
        at = {} if place is None else {"host": place[0], "port": place[1]}
        connections = redis.asyncio.BlockingConnectionPool(**options | at | pool)
        return AsyncServerClient.from_pool(connections)

    return AsyncClusterClient(address.hosts, client) if address.kind == "cluster" else client()


def _address(settings: EngineSettings) -> StoreAddress:
    if settings.redis_url is None:
        raise StoreMismatch("no store: set CALIBRANT_REDIS_URL or start the embedded server first")
    return parse_address(settings.redis_url)


class Store:
    """The store for workers: a client per partition, its keys, the scripts.

    Attributes
    ----------
    deliveries_changed : set by each commit of this process that changes waiting messages, and by the end of the process
    """

    def __init__(self, settings: EngineSettings, script_texts: Mapping[str, str] | None = None):
        self.settings = settings
        self.keys = Keys(settings.namespace, settings.partitions, day_files(settings))
        self.client = connect(settings)
        self.state = StoreState()
        self.deliveries_changed = threading.Event()
        self._scripts = script_texts or scripts()

    def node(self, partition: int) -> Any:
        """Return the client of the server that holds a partition."""
        return self.client

    def run(
        self, partition: int, script: str, keys: Sequence[str], args: Sequence[Any] = ()
    ) -> Any:
        """Run a script of a partition."""
        return self.run_on(self.node(partition), script, keys, args)

    def run_on(self, node: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Run a script on one server; load it if the server does not have it."""
        return run_text(node, self._scripts[script], keys, args)

    def queue(self, pipe: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> None:
        """Put a script into a pipeline. Its reply is NoScriptError if the server does not have it: then run it."""
        pipe.evalsha(digest_of(self._scripts[script]), len(keys), *keys, *args)

    def fix_properties(self) -> None:
        """Record the fixed properties at creation, or reject a store with other ones."""
        check_kind(self.settings.redis_url, self.client)
        require_setting(self.settings, self.client.get(self.keys.files_owner))
        fixed = fixed_properties(self.settings)
        pairs = self.client.eval(
            self._scripts["fix_properties"], 1, self.keys.configuration, *words(fixed)
        )
        check_properties(fixed, pairs)
        for number in range(self.settings.partitions):
            cursor = self.keys.partition(number).cursor
            found = self.run(number, "mark_schema", [cursor], [SCHEMA])
            check_properties({"schema": SCHEMA}, [b"schema", b"%d" % found])

    def n_partitions(self) -> int | None:
        """Return the number of partitions that the store was made with, None for a new store."""
        check_kind(self.settings.redis_url, self.client)
        found = self.client.hget(self.keys.configuration, "partitions")
        return None if found is None else int(found)

    def check_properties(self) -> None:
        """Raise StoreMismatch if the store has other properties, without changing it."""
        require_setting(self.settings, self.client.get(self.keys.files_owner))
        found = self.client.hgetall(self.keys.configuration)
        if found:
            pairs = [part for pair in found.items() for part in pair]
            check_properties(fixed_properties(self.settings), pairs)

    def close(self) -> None:
        self.client.close()


async def join(client: Any, settings: EngineSettings) -> str:
    """Check from the event loop that the store has the expected properties; return its durability.

    Raises
    ------
    StoreMismatch
        It was created with other properties, or provides less than the setting promises.
    """
    await check_kind_async(settings.redis_url, client)
    durability = await durability_of_store(client, settings.durability)
    fixed = fixed_properties(settings)
    keys = Keys(settings.namespace, settings.partitions)
    require_setting(settings, await client.get(keys.files_owner))
    pairs = await client.eval(scripts()["fix_properties"], 1, keys.configuration, *words(fixed))
    check_properties(fixed, pairs)
    return durability
