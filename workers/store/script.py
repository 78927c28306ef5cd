"""Calls of the scripts that run in the store: a server that does not have one loads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib import resources
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from calibrant_server.workers.store.key_names import Keys

StoreRetries = Callable[..., Awaitable[Any]]
# A replica on the same network confirms within milliseconds. Below the time-out of a request.
REPLICA_WAIT_MS = 1000
_WRITE_AGAIN = "#!lua flags=allow-oom\nreturn redis.call('INCRBY', KEYS[1], 0)"


@lru_cache
def scripts() -> Mapping[str, str]:
    """Return the scripts of `workers/store/scripts` by name."""
    folder = resources.files("calibrant_server.workers.store") / "scripts"
    return {
        file.name.removesuffix(".lua"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    }


@lru_cache
def digest_of(text: str) -> str:
    """Return the name that a server has a script by."""
    return sha1(text.encode()).hexdigest()


def run_script(node: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script of the package on one server; load it if the server does not have it."""
    return run_text(node, scripts()[script], keys, args)


def run_text(node: Any, text: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script on one server; load it if the server does not have it."""
    try:
        return node.evalsha(digest_of(text), len(keys), *keys, *args)
    except NoScriptError:
        return node.eval(text, len(keys), *keys, *args)


async def run_async(client: Any, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
    """Run a script from the event loop; load it if the server does not have it."""
    return await AsyncScript(client, scripts()[script])(keys, args)


class StorePart:
    """What the event loop reads and writes of one part of a store; `store_retries` repeats a call after transient errors."""

    def __init__(self, client: Any, keys: Keys, store_retries: StoreRetries):
        self._client, self._keys, self._retried = client, keys, store_retries

    async def _run(self, script: str, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Run a script."""
        return await run_async(self._client, script, keys, args)


class AsyncScript:
    """A script of the package for the event loop: it is loaded where it is missing, on each node of a cluster."""

    def __init__(self, client: Any, text: str):
        self._client = client
        self._text = text
        self._digest = digest_of(text)

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
