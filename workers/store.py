"""The Redis store: how the engine connects, and the one place that knows which server holds a partition.

Today every partition lives on one server; a cluster needs another `node`, nothing else. Retries of the client library
are off: it would repeat writes without saying so. Whoever sends something that may be repeated repeats it himself.
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

from workers.settings import EngineSettings
from workers.state.keys import SCHEMA, Keys


class StoreMismatch(RuntimeError):
    """The store was made with other fixed properties than the settings ask for."""


@lru_cache
def scripts() -> Mapping[str, str]:
    """The scripts by name, as they stand in `workers/state/scripts`."""
    folder = resources.files("workers.state") / "scripts"
    return {
        file.name.removesuffix(".lua"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    }


def _options(settings: EngineSettings) -> dict[str, Any]:
    return {
        "protocol": 2,
        "socket_timeout": settings.socket_timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "retry_on_timeout": False,
        "health_check_interval": 0,
    }


def connect(settings: EngineSettings) -> redis.Redis:
    """A blocking client; threads may share it, each call takes a connection of its own."""
    retry = redis.retry.Retry(NoBackoff(), 0)
    return redis.Redis.from_url(_url(settings), retry=retry, **_options(settings))


def connect_async(settings: EngineSettings) -> redis.asyncio.Redis:
    """A client for the event loop; more calls than connections wait for their turn."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        _url(settings),
        max_connections=settings.max_connections,
        timeout=settings.ingest_deadline_s,
        retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        **_options(settings),
    )
    return redis.asyncio.Redis.from_pool(pool)


def _url(settings: EngineSettings) -> str:
    if settings.redis_url is None:
        raise StoreMismatch("no store: set CALIBRANT_REDIS_URL or start the embedded server first")
    return settings.redis_url


class Store:
    """What workers need of the store: a client for a partition, its keys, the scripts."""

    def __init__(self, settings: EngineSettings, script_texts: Mapping[str, str] | None = None):
        self.settings = settings
        self.keys = Keys(settings.namespace, settings.partitions)
        self.client = connect(settings)
        texts = script_texts or scripts()
        self._scripts = {name: (text, sha1(text.encode()).hexdigest()) for name, text in texts.items()}

    def node(self, partition: int) -> redis.Redis:
        """The client of the server that holds a partition."""
        return self.client

    def run(self, partition: int, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Run a script of a partition, loading it where the server has lost it."""
        text, digest = self._scripts[script]
        node = self.node(partition)
        try:
            return node.evalsha(digest, len(keys), *keys, *args)
        except NoScriptError:
            return node.eval(text, len(keys), *keys, *args)

    def fix_properties(self) -> None:
        """Record what is fixed at creation, or refuse a store that was made otherwise."""
        fixed = {"partitions": self.settings.partitions, "schema": SCHEMA}
        with self.client.pipeline(transaction=True) as pipe:
            for name, value in fixed.items():
                pipe.hsetnx(self.keys.configuration, name, value)
            pipe.hgetall(self.keys.configuration)
            found = {name.decode(): int(value) for name, value in pipe.execute()[-1].items()}
        for name, value in fixed.items():
            if found[name] != value:
                raise StoreMismatch(
                    f"the store was made with {name}={found[name]}, the settings say {value}; "
                    f"{name} is fixed when a store is made"
                )

    def close(self) -> None:
        self.client.close()


def durability_of(server: Mapping[str, str] | None, wanted: str) -> str:
    """The durability that ingest answers may name.

    Parameters
    ----------
    server : `appendonly` and `appendfsync` as the server tells them, or None where it does not
    wanted : the setting

    Raises
    ------
    StoreMismatch
        The setting promises more than the server keeps.
    """
    if server is None:
        return wanted
    if server.get("appendonly") != "yes":
        kept = "none"
    else:
        kept = {"always": "fsync", "everysec": "everysec"}.get(server.get("appendfsync", ""), "none")
    if wanted == "fsync" and kept != "fsync":
        raise StoreMismatch(
            "CALIBRANT_DURABILITY=fsync needs a server with appendonly yes and appendfsync always"
        )
    return kept


async def read_durability(client: redis.asyncio.Redis, wanted: str) -> str:
    """Ask the server what it keeps; managed servers that do not tell are taken at the operator's word."""
    try:
        told = await client.config_get("append*")
    except redis.ResponseError:
        return durability_of(None, wanted)
    return durability_of({_text(name): _text(value) for name, value in told.items()}, wanted)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
