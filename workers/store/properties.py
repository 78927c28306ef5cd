"""Required properties of a store: its kind, what is fixed when it is created, its durability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.addresses import parse_address
from calibrant_server.workers.store.key_names import SCHEMA

_NOT_A_CLUSTER = "cluster support disabled"
# From the strongest to the weakest.
_DURABILITIES = ("fsync", "replicated", "everysec", "none")


class StoreMismatch(RuntimeError):
    """The store is not what the settings say, or was created with other fixed properties."""


def fixed_properties(settings: EngineSettings) -> dict[str, int]:
    """Return the properties that are fixed when a store is created."""
    return {"partitions": settings.partitions, "schema": SCHEMA}


def check_properties(fixed: Mapping[str, int], pairs: Sequence[bytes]) -> None:
    """Raise StoreMismatch unless the store was created with these properties."""
    found = {pairs[at].decode(): int(pairs[at + 1]) for at in range(0, len(pairs), 2)}
    for name, value in fixed.items():
        if name == "schema" and found[name] != value:
            raise StoreMismatch(_other_layout(found[name]))
        if found[name] != value:
            raise StoreMismatch(
                f"the store was made with {name}={found[name]}, the settings say {value}; "
                f"{name} is fixed when a store is made"
            )


def _other_layout(found: int) -> str:
    if found > SCHEMA:
        return (
            f"the store was written by a newer version of Calibrant (layout {found}; this version reads {SCHEMA}): "
            "run that version on it, or name another store"
        )
    return (
        f"the store was written by an older version of Calibrant (layout {found}; this version reads {SCHEMA}). Run that "
        "version on it and export each model: `calibrant export MODEL FILE --records --reports`. Then start this version on "
        "an empty store and import it: `calibrant import MODEL FILE`"
    )


def words(properties: Mapping[str, int]) -> list[str | int]:
    """Return properties as a script takes them: name, value, name, value."""
    return [part for pair in properties.items() for part in pair]


def check_kind(url: str | None, client: Any) -> None:
    """Check, by a blocking client, that a cluster has the URL of a cluster, and nothing else has it.

    Raises
    ------
    StoreMismatch
        The message says which URL is right.
    """
    try:
        for server in client.masters() if _is_cluster(url) else [client]:
            _require_kind(url, server.info("cluster"))
    except NoPermissionError:
        return
    except ResponseError as error:
        _explain(error)


async def check_kind_async(url: str | None, client: Any) -> None:
    """Check the same from the event loop."""
    try:
        for server in await masters_of(client):
            _require_kind(url, await server.info("cluster"))
    except NoPermissionError:
        return
    except ResponseError as error:
        _explain(error)


async def masters_of(client: Any) -> list[Any]:
    """Return a client of each server that holds a part of the store."""
    return await client.masters() if hasattr(client, "masters") else [client]


def _is_cluster(url: str | None) -> bool:
    return url is not None and parse_address(url).kind == "cluster"


def _require_kind(url: str | None, server: Mapping[str, Any]) -> None:
    if int(server.get("cluster_enabled", 0)) and not _is_cluster(url):
        raise StoreMismatch(
            "CALIBRANT_REDIS_URL names one node of a cluster: begin it with redis+cluster:// "
            "(rediss+cluster:// with TLS) and name one node or several, separated by commas"
        )


def _explain(error: ResponseError) -> None:
    if _NOT_A_CLUSTER in str(error):
        raise StoreMismatch(
            "CALIBRANT_REDIS_URL begins with redis+cluster://, but this server is not part of a cluster: "
            "begin it with redis://"
        ) from error
    raise error


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


async def _require_replicas(client: Any) -> None:
    """Check that each server has a replica, and rejects writes without one."""
    for server in await masters_of(client):
        n_replicas = int((await server.info("replication")).get("connected_slaves", 0))
        try:
            reported = await server.config_get("min-*-to-write")
        except ResponseError:
            n_needed = 1  # a managed server hides it
        else:
            n_needed = max((int(value) for value in reported.values()), default=0)
        if n_replicas < 1 or n_needed < 1:
            raise StoreMismatch(
                "CALIBRANT_DURABILITY=replicated needs a replica of each server and min-replicas-to-write 1: "
                f"one has {n_replicas} replicas and min-replicas-to-write {n_needed}"
            )


async def durability_of_store(client: Any, wanted: str) -> str:
    """Return the weakest durability of the store's servers; if a managed server hides it, rely on the setting."""
    if wanted == "replicated":
        await _require_replicas(client)
        return wanted
    found = []
    for server in await masters_of(client):
        try:
            reported = await server.config_get("append*")
        except ResponseError:
            found.append(durability_of(None, wanted))
        else:
            texts = {_text(name): _text(value) for name, value in reported.items()}
            found.append(durability_of(texts, wanted))
    return max(found, key=_DURABILITIES.index)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
