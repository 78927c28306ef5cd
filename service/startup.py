"""Start of the service: errors that prevent it, each as one sentence; sockets, bound before anything is started, and descriptors for
connections; and the wait for the store.

While the store is away, the process responds, reports itself not ready, and serves once the store does. A process that ended instead would be
started again and again, and no user could ask it why it does not serve. Errors that no wait ends, such as a store of another version, end it.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from redis.exceptions import RedisError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibrant import kernel
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.connections import MAX_CONNECTIONS
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError
from calibrant_server.workers.settings import (
    PREFIX,
    EngineSettings,
    SettingsError,
    explained,
    variables,
)
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.server_files import EmbeddedServerError, ServerSilent
from calibrant_server.workers.store.transient_errors import is_worth_repeating, store_message

log = logging.getLogger("service")

_TOKENS = "let a proxy such as oauth2-proxy sign people in, and remove the variable."
_ONE_PERSON = (
    "one person promotes and acknowledges, with a reason in the audit log. Remove the variable."
)
# Variables of clients and of the command line, which may be set in the shell that starts the service.
OF_CLIENTS = {"CALIBRANT_URL", "CALIBRANT_KEY"}
# Settings of earlier versions, and what to do instead.
REMOVED = {
    "CALIBRANT_PROXY_ADDRESSES": "set CALIBRANT_TRUSTED_PROXIES and CALIBRANT_PROXY_SECRET.",
    "CALIBRANT_OIDC_ISSUER": _TOKENS,
    "CALIBRANT_OIDC_AUDIENCE": _TOKENS,
    "CALIBRANT_SECOND_PERSON": _ONE_PERSON,
    "CALIBRANT_SECOND_PERSON_ALARMS": _ONE_PERSON,
}
MAX_DESCRIPTORS = 65_536
# Descriptors for the store, files, threads and connections that are accepted before others have ended.
RESERVED_DESCRIPTORS, BACKLOG = 256, 128
FORESEEN = (EmbeddedServerError, StoreMismatch, StoreUnavailableError, SettingsError, RedisError)


class CannotListen(OSError):
    """The address cannot be listened on; the message says why."""


def bound_to(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to every address of `host`.

    Raises
    ------
    CannotListen
        Another process has the port, or this machine has no such address.
    """
    found: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            each = socket.socket(family, kind, protocol)
            found.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
    except OSError as error:
        for each in found:
            each.close()
        reason = (error.strerror or str(error)).lower()
        detail = f"cannot listen on {host}:{port}: {reason}; choose another address with CALIBRANT_HOST and CALIBRANT_PORT"
        raise CannotListen(detail) from error
    return found


def _addresses(host: str, port: int) -> Iterable[tuple[Any, ...]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return dict.fromkeys(found) if port else found[:1]  # each socket would get a different port


def _shown(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def sentence(error: Exception) -> str:
    """Return the error; for a setting its name and rule, never its value, which may be a secret."""
    return explained(error) if isinstance(error, ValidationError) else str(error)


def unread() -> list[str]:
    """Return the variables with the prefix that no setting reads: most likely misspelt."""
    read = (
        variables(Settings).keys()
        | variables(EngineSettings).keys()
        | kernel.VARIABLES
        | OF_CLIENTS
    )
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in read)


def reject_removed() -> None:
    """Reject settings of earlier versions that protected something: a warning could be overlooked.

    Raises
    ------
    SettingsError
    """
    found = [
        f"{name} is removed: {instead}" for name, instead in REMOVED.items() if os.environ.get(name)
    ]
    if found:
        raise SettingsError(" ".join(found))


def print_addresses(sockets: Sequence[socket.socket]) -> None:
    """Print a plain line to standard output; the log is lines of JSON on standard error.

    In a terminal, which shows both, empty lines set it apart.
    """
    if not sockets or sys.stdout is None:
        return
    addresses = " and ".join(f"http://{_shown(each)}" for each in sockets)
    line = f"Calibrant serves on {addresses} (pages, and /docs for the API). Ctrl+C stops it."
    # A closed output, as that of a service without a console, is no reason not to serve.
    with suppress(OSError, ValueError):
        print(f"\n{line}\n" if sys.stdout.isatty() else line, flush=True)


def report_start(app: FastAPI, sockets: Sequence[socket.socket]) -> None:
    """Make the app log its addresses once started, and print an expected start error without a traceback."""
    run: ASGIApp = app.router.lifespan

    async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
        failures: list[Message] = []

        async def hold_failure(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                failures.append(message)
                return
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                log.info("panes_filled_by kernel=%s", kernel.status())
                for each in sockets:
                    log.info(
                        "serving on http://%s, described at /docs; Ctrl+C stops it", _shown(each)
                    )

        try:
            await run(scope, receive, hold_failure)
        except Exception as error:
            if not failures:
                raise
            plain = {"message": f"calibrant: {error}"} if isinstance(error, FORESEEN) else {}
            await send({**failures[0], **plain})
            raise

    app.router.lifespan = lifespan  # type: ignore[method-assign]


PAUSE_S = 0.5


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


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors up to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def n_descriptors() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else int(soft)


def connection_limit() -> int:
    """Return how many connections this process may have: fewer than its descriptors, with a reserve."""
    n = n_descriptors()
    return max(1, min(MAX_CONNECTIONS, n - min(RESERVED_DESCRIPTORS, n // 2)))


def backlog() -> int:
    """Return how many connections are accepted at once, so that they fit in the reserve."""
    return max(8, min(BACKLOG, n_descriptors() // 4))
