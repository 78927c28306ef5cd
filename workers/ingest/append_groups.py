"""Groups of appends: the batches that come together go to the store in one script per partition.

One round trip costs more CPU than appending a small batch. So the batches of one turn of the event loop are sent together,
and those that come while a script of their partition is on its way wait for the next one. Partitions do not wait for each
other. Each batch has its own reply; an error of the script is the error of every batch in it, and each of them may repeat
its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# A script occupies the store while it runs. A larger batch is sent alone.
MAX_BATCHES, MAX_BYTES = 64, 1024 * 1024


class GroupKey(NamedTuple):
    """What the batches of one script have in common.

    Attributes
    ----------
    frees_memory : whether a full store takes them
    is_last_try : whether they were rejected before by older numbers
    """

    partition: int
    frees_memory: bool = False
    is_last_try: bool = False


class Append(NamedTuple):
    """One batch of a script: its keys, its arguments and about how many bytes they are."""

    keys: Sequence[str]
    arguments: Sequence[Any]
    n_bytes: int


Send = Callable[[GroupKey, list[Append]], Awaitable[Sequence[Any]]]


@dataclass
class _Line:
    """The batches that wait for a script of their partition."""

    waiting: deque[tuple[Append, asyncio.Future[Any]]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class AppendGroups:
    """Collects appends by group.

    Parameters
    ----------
    send : runs the script of a group, and returns one reply of each batch
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lines: dict[GroupKey, _Line] = {}

    async def append(self, group: GroupKey, each: Append) -> Any:
        """Append with the next script of a group; return the reply of this batch."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(group, _Line())
        line.waiting.append((each, reply))
        if line.task is None:
            line.task = asyncio.create_task(self._run(group, line))
        return await reply

    async def _run(self, group: GroupKey, line: _Line) -> None:
        """Send what waits, until nothing does. The task begins in the next turn of the loop: one turn is one group."""
        try:
            while line.waiting:
                await self._run_once(group, _next(line.waiting))
        finally:
            self._lines.pop(group, None)
            for _, reply in line.waiting:
                reply.cancel()

    async def _run_once(
        self, group: GroupKey, some: list[tuple[Append, asyncio.Future[Any]]]
    ) -> None:
        try:
            replies = await self._send(group, [each for each, _ in some])
        except BaseException as error:
            for _, reply in some:
                if not reply.done():
                    reply.set_exception(_of_its_own(error))
            if not isinstance(error, Exception):
                raise
            return
        for (_, reply), found in zip(some, replies, strict=True):
            if not reply.done():  # done, if its request was cancelled
                reply.set_result(found)


def _of_its_own(error: BaseException) -> BaseException:
    """Return an error for one request: a cancelled script is a connection that was closed."""
    return error if isinstance(error, Exception) else ConnectionError("the store was closed")


def _next(
    waiting: deque[tuple[Append, asyncio.Future[Any]]],
) -> list[tuple[Append, asyncio.Future[Any]]]:
    """Take the batches of the next script. Requests that were cancelled meanwhile are left out."""
    found: list[tuple[Append, asyncio.Future[Any]]] = []
    n_bytes = 0
    while waiting and len(found) < MAX_BATCHES:
        if waiting[0][1].done():
            waiting.popleft()
            continue
        n_bytes += waiting[0][0].n_bytes
        if found and n_bytes > MAX_BYTES:
            break
        found.append(waiting.popleft())
    return found
