"""Start while the store is away: the process responds, reports itself not ready, and serves once the store does.

A process that ended instead would be started again and again, and no user could ask it why it does not serve. Errors that
no wait ends, such as a store of another version, end the process.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress

from fastapi import FastAPI
from redis.exceptions import RedisError

from calibrant_server.service.engine import Connection
from calibrant_server.workers.ingest.inbox import StoreUnavailableError
from calibrant_server.workers.store.server_files import ServerSilent
from calibrant_server.workers.store.transient_errors import is_worth_repeating, store_message

PAUSE_S = 0.5

log = logging.getLogger("service")

Connect = Callable[[], AbstractAsyncContextManager[Connection]]
Join = Callable[[Connection, AsyncExitStack], Awaitable[None]]


def is_away(error: BaseException) -> bool:
    """Return whether an error of the start ends by itself once the store serves."""
    if isinstance(error, StoreUnavailableError) and error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, ServerSilent) or is_worth_repeating(error)


@asynccontextmanager
async def joined(app: FastAPI, connect: Connect, join: Join) -> AsyncIterator[None]:
    """Connect and join; while the store is away, go on without and repeat in the background.

    Parameters
    ----------
    connect : connects to the store, or starts it with the engine
    join : called once with the connection; what it enters is left at the end
    """
    async with AsyncExitStack() as stack:
        if not await _has_joined(app, connect, join, stack):
            task = asyncio.create_task(_until_joined(app, connect, join, stack))
            stack.push_async_callback(_ended, task)
        yield


async def _has_joined(app: FastAPI, connect: Connect, join: Join, stack: AsyncExitStack) -> bool:
    try:
        connection = await stack.enter_async_context(connect())
    except (StoreUnavailableError, ServerSilent, RedisError, OSError) as error:
        if not is_away(error):
            raise
        if not app.state.waits_for_store:
            log.warning("service_waits_for_store error=%s", store_message(error))
        app.state.waits_for_store = True
        return False
    await join(connection, stack)
    return True


async def _until_joined(app: FastAPI, connect: Connect, join: Join, stack: AsyncExitStack) -> None:
    try:
        await asyncio.sleep(PAUSE_S)
        while not await _has_joined(app, connect, join, stack):
            await asyncio.sleep(PAUSE_S)
        log.info("service_has_reached_store")
        app.state.announce()
    except Exception as error:
        log.critical("service_not_started error=%s", error)
        app.state.start_error = error
        os.kill(os.getpid(), signal.SIGTERM)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
