"""Connection to the Redis store, and the one place that knows which server holds a partition.

All partitions are on one server. A cluster needs another `node` and nothing else. Retries of the client library are off:
it would repeat writes silently. Callers repeat what is safe to repeat.
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
from redis.exceptions import NoScriptError

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.keys import SCHEMA, Keys

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


def connect(settings: EngineSettings) -> Any:
    """Return a blocking client. Threads can share it; each call uses its own connection.

    Not typed: the library's types leave open whether replies are text, and here they are always bytes.
    """
    retry = redis.retry.Retry(NoBackoff(), 0)
    return redis.Redis.from_url(_url(settings), retry=retry, **_options(settings))


def connect_async(settings: EngineSettings) -> Any:
    """Return a client for the event loop; calls above the number of connections wait."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
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
        """Run a script of a partition; load it if the server does not have it."""
        text, digest = self._scripts[script]
        node = self.node(partition)
        try:
            return node.evalsha(digest, len(keys), *keys, *args)
        except NoScriptError:
            return node.eval(text, len(keys), *keys, *args)

    def fix_properties(self) -> None:
        """Record the fixed properties at creation, or reject a store with other ones."""
        fixed = fixed_properties(self.settings)
        text, _ = self._scripts["fix_properties"]
        pairs = self.client.eval(text, 1, self.keys.configuration, *_flat(fixed))
        check_properties(fixed, pairs)

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
