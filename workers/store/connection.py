"""Connection to the Redis store: one server, a cluster, or the master that sentinels name.

Retries of the client library are off: it would repeat writes silently. Callers repeat what is safe to repeat.

After a failover the store's name or address leads to another server, but pooled connections stay with the old one, which
rejects every write, or with a machine that is gone. So a call that meets such an error closes the pool's waiting connections.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib import resources
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.addresses import StoreAddress, parse_address
from calibrant_server.workers.store.cluster import AsyncClusterClient, ClusterClient, Node
from calibrant_server.workers.store.day_file import day_files
from calibrant_server.workers.store.file_owner import require_setting
from calibrant_server.workers.store.keys import SCHEMA, Keys
from calibrant_server.workers.store.properties import (
    StoreMismatch,
    check_kind,
    check_kind_async,
    check_properties,
    durability_of_store,
    fixed_properties,
    words,
)
from calibrant_server.workers.store.sentinel import with_async_sentinels, with_sentinels
from calibrant_server.workers.store.store_state import StoreState
from calibrant_server.workers.store.transient_errors import is_of_the_connection

# A server on the same network accepts a connection within milliseconds, or not at all.
CONNECT_TIMEOUT_S = 1.0
# A replica on the same network confirms within milliseconds. Below the time-out of a request.
REPLICA_WAIT_MS = 1000
_WRITE_AGAIN = "#!lua flags=allow-oom\nreturn redis.call('INCRBY', KEYS[1], 0)"
# Wait for a connection of the pool. Calls release theirs within the socket's timeout.
POOL_WAIT_S = 5.0
# Of the event loop of one process. Appends are sent in groups and replies are read by one reader, so that a busy process uses a few.
MAX_CONNECTIONS = 64


@lru_cache
def scripts() -> Mapping[str, str]:
    """Return the scripts of `workers/store/scripts` by name."""
    folder = resources.files("calibrant_server.workers.store") / "scripts"
    return {
        file.name.removesuffix(".lua"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    }


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
        texts = script_texts or scripts()
        self._scripts = {
            name: (text, sha1(text.encode()).hexdigest()) for name, text in texts.items()
        }

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
        text, digest = self._scripts[script]
        try:
            return node.evalsha(digest, len(keys), *keys, *args)
        except NoScriptError:
            return node.eval(text, len(keys), *keys, *args)

    def queue(self, pipe: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> None:
        """Put a script into a pipeline. Its reply is NoScriptError if the server does not have it: then run it."""
        pipe.evalsha(self._scripts[script][1], len(keys), *keys, *args)

    def fix_properties(self) -> None:
        """Record the fixed properties at creation, or reject a store with other ones."""
        check_kind(self.settings.redis_url, self.client)
        require_setting(self.settings, self.client.get(self.keys.files_owner))
        fixed = fixed_properties(self.settings)
        text, _ = self._scripts["fix_properties"]
        pairs = self.client.eval(text, 1, self.keys.configuration, *words(fixed))
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


def run_script(node: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script of the package on one server; load it if the server does not have it."""
    text = scripts()[script]
    try:
        return node.evalsha(sha1(text.encode()).hexdigest(), len(keys), *keys, *args)
    except NoScriptError:
        return node.eval(text, len(keys), *keys, *args)


async def run_async(client: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script from the event loop; load it if the server does not have it."""
    return await AsyncScript(client, scripts()[script])(keys, args)


class AsyncScript:
    """A script of the package for the event loop: it is loaded where it is missing, on each node of a cluster."""

    def __init__(self, client: Any, text: str):
        self._client = client
        self._text = text
        self._digest = sha1(text.encode()).hexdigest()

    async def __call__(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Run the script."""
        try:
            return await self._client.evalsha(self._digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.eval(self._text, len(keys), *keys, *args)

    async def run(
        self, keys: Sequence[str], args: Sequence[Any], touched: str, durability: str
    ) -> Any:
        """Run the script; with durability `replicated` as by `run_replicated`."""
        if durability == "replicated":
            return await self.run_replicated(keys, args, touched)
        return await self(keys, args)

    async def run_replicated(self, keys: Sequence[str], args: Sequence[Any], touched: str) -> Any:
        """Run the script and wait until a replica has what it wrote, or what an earlier attempt wrote.

        Parameters
        ----------
        touched : an integer in the same slot; its value is written again, because a replica confirms up to the last write
            of a connection, and a repeated script may write nothing

        Raises
        ------
        NotReplicated
            The caller repeats the script: what it wrote may be lost with this server.
        """
        for command in (("EVALSHA", self._digest), ("EVAL", self._text)):
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.execute_command(*command, len(keys), *keys, *args)
                pipe.eval(_WRITE_AGAIN, 1, touched)
                pipe.execute_command("WAIT", 1, REPLICA_WAIT_MS)
                replies = await pipe.execute(raise_on_error=False)
            if not isinstance(replies[0], NoScriptError):
                break
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if int(replies[2]) < 1:
            raise NotReplicated()
        return replies[0]


async def read_replicated(client: Any, touched: str, *command: Any) -> Any:
    """Return the reply of a command from the event loop once a replica has what it read.

    Parameters
    ----------
    touched : an integer in the same slot

    Raises
    ------
    NotReplicated
    """
    async with client.pipeline(transaction=False) as pipe:
        pipe.execute_command(*command)
        pipe.eval(_WRITE_AGAIN, 1, touched)
        pipe.execute_command("WAIT", 1, REPLICA_WAIT_MS)
        value, _, n_replicas = await pipe.execute()
    if int(n_replicas) < 1:
        raise NotReplicated()
    return value


class NotReplicated(ResponseError):  # type: ignore[misc]
    """No replica confirmed a write in time."""

    def __init__(self) -> None:
        super().__init__(
            f"no replica confirmed the write within {REPLICA_WAIT_MS} ms", status_code="NOREPLICAS"
        )


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
