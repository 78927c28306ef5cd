"""A result that many requests share: it is computed once at a time, and at most once per second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

RECENT_S = 1.0


class Recent(Generic[T]):
    """The last result of `compute`, and its error likewise; operations without a key use it, because no rate limits them.

    Parameters
    ----------
    compute : it goes on if the request that began it ends
    """

    def __init__(self, compute: Callable[[], Awaitable[T]]) -> None:
        self._compute = compute
        self._task: asyncio.Task[T] | None = None
        self._computed_at = 0.0

    async def get(self) -> T:
        """Return the result of the last second, or that of the computation that runs, or a new one."""
        if self._task is None or self._is_old(self._task):
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(self._task)

    def _is_old(self, task: asyncio.Task[T]) -> bool:
        return task.done() and time.monotonic() >= self._computed_at + RECENT_S

    async def _run(self) -> T:
        try:
            return await self._compute()
        finally:
            self._computed_at = time.monotonic()
