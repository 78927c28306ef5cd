"""Connection to the Redis store, and the one place that knows which server holds a partition.

All partitions are on one server. A cluster needs another `node` and nothing else. Retries of the client library are off:
it would repeat writes silently. Callers repeat what is safe to repeat.

After a failover the store's name or address leads to another server, but pooled connections stay with the old one, which
rejects every write, or with a machine that is gone. So a connection that meets such an error makes its pool close all
idle connections, and those in use when they are returned. The next request connects again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib import resources
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.keys import SCHEMA, Keys
from calibrant_server.workers.store.store_state import StoreState
from calibrant_server.workers.store.transient_errors import is_of_the_connection

# A server on the same network accepts a connection within milliseconds, or not at all.
CONNECT_TIMEOUT_S = 1.0
# Wait for a connection of the pool. Calls release theirs within the socket's timeout.
POOL_WAIT_S = 5.0


class StoreMismatch(RuntimeError):
    """The store was created with other fixed properties than the settings require."""


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
    }


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


def connect(settings: EngineSettings) -> Any:
    """Return a blocking client. Threads can share it; each call uses its own connection.

    Not typed: the library's types leave open whether replies are text, and here they are always bytes.
    """
    retry = redis.retry.Retry(NoBackoff(), 0)
    pool = FailoverPool.from_url(_url(settings), retry=retry, **_options(settings))
    return redis.Redis.from_pool(pool)


def connect_async(settings: EngineSettings) -> Any:
    """Return a client for the event loop; calls above the number of connections wait."""
    pool = AsyncFailoverPool.from_url(
        _url(settings),
        max_connections=settings.max_connections,
        timeout=POOL_WAIT_S,
        retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        **_options(settings),
    )
    return redis.asyncio.Redis.from_pool(pool)


def _url(settings: EngineSettings) -> str:
    if settings.redis_url is None:
        raise StoreMismatch("no store: set CALIBRANT_REDIS_URL or start the embedded server first")
    return settings.redis_url


class Store:
    """The store for workers: a client per partition, its keys, the scripts."""

    def __init__(self, settings: EngineSettings, script_texts: Mapping[str, str] | None = None):
        self.settings = settings
        self.keys = Keys(settings.namespace, settings.partitions)
        self.client = connect(settings)
        self.state = StoreState()
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
        fixed = fixed_properties(self.settings)
        text, _ = self._scripts["fix_properties"]
        pairs = self.client.eval(text, 1, self.keys.configuration, *_flat(fixed))
        check_properties(fixed, pairs)
        for number in range(self.settings.partitions):
            cursor = self.keys.partition(number).cursor
            found = self.run(number, "mark_schema", [cursor], [SCHEMA])
            check_properties({"schema": SCHEMA}, [b"schema", b"%d" % found])

    def check_properties(self) -> None:
        """Raise StoreMismatch if the store has other properties, without changing it."""
        found = self.client.hgetall(self.keys.configuration)
        if found:
            pairs = [part for pair in found.items() for part in pair]
            check_properties(fixed_properties(self.settings), pairs)

    def close(self) -> None:
        self.client.close()


def fixed_properties(settings: EngineSettings) -> dict[str, int]:
    """Return the properties that are fixed when a store is created."""
    return {"partitions": settings.partitions, "schema": SCHEMA}


def check_properties(fixed: Mapping[str, int], pairs: Sequence[bytes]) -> None:
    """Raise StoreMismatch unless the store was created with these properties."""
    found = {pairs[at].decode(): int(pairs[at + 1]) for at in range(0, len(pairs), 2)}
    for name, value in fixed.items():
        if name == "schema" and found[name] != value:
            raise StoreMismatch(
                f"the store was written by {'a newer' if found[name] > value else 'an older'} version of Calibrant "
                f"(layout {found[name]}; this version reads {value}): run that version on it, or name another store"
            )
        if found[name] != value:
            raise StoreMismatch(
                f"the store was made with {name}={found[name]}, the settings say {value}; "
                f"{name} is fixed when a store is made"
            )


def _flat(fixed: Mapping[str, int]) -> list[str | int]:
    return [part for pair in fixed.items() for part in pair]


def run_script(node: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script of the package on one server; load it if the server does not have it."""
    text = scripts()[script]
    try:
        return node.evalsha(sha1(text.encode()).hexdigest(), len(keys), *keys, *args)
    except NoScriptError:
        return node.eval(text, len(keys), *keys, *args)


async def run_async(client: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script from the event loop; load it if the server does not have it."""
    text = scripts()[script]
    try:
        return await client.evalsha(sha1(text.encode()).hexdigest(), len(keys), *keys, *args)
    except NoScriptError:
        return await client.eval(text, len(keys), *keys, *args)


async def join(client: Any, settings: EngineSettings) -> str:
    """Check from the event loop that the store has the expected properties; return its durability.

    Raises
    ------
    StoreMismatch
        It was created with other properties, or provides less than the setting promises.
    """
    fixed = fixed_properties(settings)
    name = Keys(settings.namespace, settings.partitions).configuration
    pairs = await client.eval(scripts()["fix_properties"], 1, name, *_flat(fixed))
    check_properties(fixed, pairs)
    return await _read_durability(client, settings.durability)


def durability_of(server: Mapping[str, str] | None, wanted: str) -> str:
    """Return the durability for ingest responses.

    Parameters
    ----------
    server : `appendonly` and `appendfsync` as the server reports them, or None if it does not
    wanted : the setting

    Raises
    ------
    StoreMismatch
        The setting promises more than the server provides.
    """
    if server is None:
        return wanted
    if server.get("appendonly") != "yes":
        stored = "none"
    else:
        stored = {"always": "fsync", "everysec": "everysec"}.get(
            server.get("appendfsync", ""), "none"
        )
    if wanted == "fsync" and stored != "fsync":
        raise StoreMismatch(
            "CALIBRANT_DURABILITY=fsync needs a server with appendonly yes and appendfsync always"
        )
    return stored


async def _read_durability(client: Any, wanted: str) -> str:
    """Read the server's durability; if a managed server hides it, rely on the setting."""
    try:
        reported = await client.config_get("append*")
    except redis.ResponseError:
        return durability_of(None, wanted)
    return durability_of({_text(name): _text(value) for name, value in reported.items()}, wanted)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
