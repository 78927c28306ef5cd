"""The engine inside another process: inbox and registry; by default it also does all of the work if it starts the embedded store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any

from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.store_of_settings import store_of, with_partitions_of_store
from calibrant_server.workers.supervisor import Supervisor


class Engine:
    """Engine on a store. Without an operator's store, it starts the embedded one and works in threads of this process.

    Parameters
    ----------
    settings : see `EngineSettings`
    works_here : whether this process merges and computes; default: if the store is embedded
    parts : passed on to `Supervisor`

    Examples
    --------
    >>> async with Engine(EngineSettings()) as engine:  # doctest: +SKIP
    ...     await engine.inbox.hand_over(delivery)
    """

    inbox: Inbox
    registry: Registry

    def __init__(self, settings: EngineSettings, works_here: bool | None = None, **parts: Any):
        self.settings = settings
        self.supervisor: Supervisor | None = None
        self._works_here = settings.redis_url is None if works_here is None else works_here
        self._parts = parts
        self._started = ExitStack()
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Engine:
        try:
            await asyncio.to_thread(self._start)
            self.inbox = await self._opened.enter_async_context(Inbox(self.settings))
            self.registry = Registry(self.inbox.client, self.inbox.keys, self.settings.durability)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.aclose()
        await asyncio.to_thread(self._started.close)

    @property
    def is_alive(self) -> bool:
        """Whether the work of this process continues, if it does any."""
        return self.supervisor is None or self.supervisor.is_alive

    def _start(self) -> None:
        stored = self._started.enter_context(store_of(self.settings))
        self.settings = with_partitions_of_store(stored)
        if self._works_here:
            self.supervisor = Supervisor(self.settings, **self._parts)
            self._started.callback(self.supervisor.stop)
            self.supervisor.start()
