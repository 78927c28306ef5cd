"""What this instance reports about itself without a key: whether it is ready, and its series for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from fastapi import FastAPI
from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from calibrant_server.service.engine import Connection
from calibrant_server.service.http.engine_errors import engine_errors
from calibrant_server.service.http.problems import StoreUnavailable
from calibrant_server.service.http.prometheus import Series, operation_series
from calibrant_server.workers.store.partition_state import Troubles

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


STORE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Readiness:
    """Whether it is full, and what waits for an operator."""

    is_store_full: bool
    troubles: Troubles


def observe(app: FastAPI, connection: Connection) -> None:
    """Give the app its reports; requests of the same second share each."""
    troubles = Recent(partial(_troubles, connection))
    app.state.readiness = Recent(partial(_readiness, connection, troubles))
    app.state.service_series = Recent(partial(_series, app, troubles))


async def _troubles(connection: Connection) -> Troubles:
    async with _in_time():
        return await connection.inbox.troubles()


async def _readiness(connection: Connection, troubles: Recent[Troubles]) -> Readiness:
    async with _in_time():
        is_full = await connection.check()
    return Readiness(is_full, await troubles.get())


async def _series(app: FastAPI, troubles: Recent[Troubles]) -> bytes:
    """Return the text; without the store there are no series of its queues, because a zero would be believed."""
    found: list[Collector] = [app.state.metrics.registry]
    with suppress(StoreUnavailable):
        found.append(Series(operation_series(await troubles.get())))
    return b"".join(map(generate_latest, found))


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Raise StoreUnavailable if the store fails, or does not reply in time."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            with engine_errors():
                yield
    except TimeoutError as error:
        raise StoreUnavailable() from error
