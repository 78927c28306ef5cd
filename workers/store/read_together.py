"""Reads of several hashes at one moment of the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis.exceptions import OutOfMemoryError

from calibrant_server.workers.store.script import run_async, run_script


class ReadTogether:
    """Reads in one transaction, or by `read_together.lua` if memory is full: the script costs twice the time for large panes."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._commands: list[tuple[Any, ...]] = []

    def hget(self, name: str, field: Any) -> None:
        """Read a field of a hash."""
        self._add(name, "HGET", field)

    def hmget(self, name: str, fields: Iterable[Any]) -> None:
        """Read fields of a hash."""
        self._add(name, "HMGET", *fields)

    def hgetall(self, name: str) -> None:
        """Read a hash."""
        self._add(name, "HGETALL")

    def hvals(self, name: str) -> None:
        """Read the values of a hash."""
        self._add(name, "HVALS")

    def run(self, node: Any) -> list[Any]:
        """Return the replies, by a blocking client."""
        try:
            with node.pipeline(transaction=True) as pipe:
                self._queue(pipe)
                replies = pipe.execute()
        except OutOfMemoryError:
            replies = run_script(node, "read_together", self._names, self._words)
        return self._read(replies)

    async def run_async(self, client: Any) -> list[Any]:
        """Return the replies, from the event loop."""
        try:
            async with client.pipeline(transaction=True) as pipe:
                self._queue(pipe)
                replies = await pipe.execute()
        except OutOfMemoryError:
            replies = await run_async(client, "read_together", self._names, self._words)
        return self._read(replies)

    def _add(self, name: str, command: str, *arguments: Any) -> None:
        self._names.append(name)
        self._commands.append((command, name, *arguments))

    def _queue(self, pipe: Any) -> None:
        for command in self._commands:
            pipe.execute_command(*command)

    @property
    def _words(self) -> list[Any]:
        """Commands without their keys, as the script takes them."""
        return [
            word
            for command, _, *arguments in self._commands
            for word in (command, len(arguments), *arguments)
        ]

    def _read(self, replies: list[Any]) -> list[Any]:
        return [
            _as_dict(reply) if command == "HGETALL" else reply
            for reply, (command, *_) in zip(replies, self._commands, strict=True)
        ]


def _as_dict(reply: Any) -> dict[bytes, bytes]:
    """Return a hash; the client library makes a mapping of it only outside scripts."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))
