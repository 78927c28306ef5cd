"""Start of the HTTP service: reads settings and keys, listens and serves; `python -m service`."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import FrameType

# Matrices here are small, and threads of a linear algebra library would wait for each other on busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from calibrant_server.service.app import TelemetryUnavailable, create_app
from calibrant_server.service.engine import engine_settings
from calibrant_server.service.http.connections import (
    KEEP_ALIVE_S,
    ConnectionSlots,
    protocol_in,
)
from calibrant_server.service.pages.rendering import load_templates
from calibrant_server.service.security.key_file import KeysUnreadable, load_keyring
from calibrant_server.service.security.keys import is_loopback
from calibrant_server.service.security.proxy_sign_in import PEER, RoleSettingsError, proxy_sign_in
from calibrant_server.service.settings import Settings
from calibrant_server.service.startup import (
    CannotListen,
    backlog,
    bound_to,
    connection_limit,
    print_addresses,
    raise_descriptor_limit,
    reject_removed,
    report_start,
    sentence,
    unread,
)
from calibrant_server.workers.logs import configure_logs
from calibrant_server.workers.memory import prepare_process
from calibrant_server.workers.settings import SettingsError

TICK_S = 1.0
SHUTDOWN_S = 15  # maximum wait for long polls at shutdown
EXIT_NOT_STARTED = 3

log = logging.getLogger("service")


def main() -> None:
    """Serve until stopped. Without keys, listen to this machine only."""
    configure_logs()
    try:
        reject_removed()
        settings = Settings()
        engine_settings(settings)
        is_open = load_keyring(settings).is_open
        names_people = proxy_sign_in(settings) is not None
    except (ValidationError, SettingsError, KeysUnreadable, RoleSettingsError) as error:
        sys.exit(f"calibrant: {sentence(error)}")
    if is_open and names_people:
        sys.exit(
            "calibrant: CALIBRANT_ROLES needs keys, but no keys are configured: every request is accepted. Set CALIBRANT_KEYS_FILE (with "
            "CALIBRANT_CREATE_KEY=true a first key is made) or CALIBRANT_KEYS."
        )
    open_to_others = is_open and not is_loopback(settings.host)
    if open_to_others:
        sys.exit(
            f"calibrant: no keys are configured, so the service does not listen on {settings.host}.\n"
            "Listen on 127.0.0.1, or set CALIBRANT_KEYS_FILE (with CALIBRANT_CREATE_KEY=true a first "
            "key is made) or CALIBRANT_KEYS."
        )
    for name in unread():
        log.warning("setting_unknown name=%s", name)
    try:
        sockets = bound_to(settings.host, settings.port)
    except CannotListen as error:
        sys.exit(f"calibrant: {error}")
    serve(settings, sockets)


def serve(settings: Settings, sockets: list[socket.socket]) -> None:
    """Serve on these sockets until stopped; exit with 3 if the store or the engine cannot be started."""
    raise_descriptor_limit()
    try:
        app = create_app(settings)
    except TelemetryUnavailable as error:
        sys.exit(f"calibrant: {error}")
    report_start(app, sockets)
    app.state.announce = partial(print_addresses, sockets)
    load_templates()
    prepare_process()
    config = uvicorn.Config(
        with_peer(app, settings.trusted_proxies),
        proxy_headers=False,
        http=protocol_in(ConnectionSlots(connection_limit())),
        ws="none",
        access_log=False,
        server_header=False,
        log_config=None,
        backlog=backlog(),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = AnnouncedServer(config, app)
    # uvicorn stops at a signal and raises it again afterwards, which would end a clean stop as a death by signal.
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
    with suppress(KeyboardInterrupt):
        server.run(sockets)
    if app.state.start_error is not None:
        print(f"calibrant: {sentence(app.state.start_error)}", file=sys.stderr)
    if not server.started or app.state.start_error is not None:
        sys.exit(EXIT_NOT_STARTED)


class AnnouncedServer(uvicorn.Server):
    """A server that announces the app once it listens, unless the app still waits for the store and does so later."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app
        self._signalled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app and listen."""
        await super().startup(sockets)
        if self.started and not self._app.state.waits_for_store:
            self._app.state.announce()

    async def main_loop(self) -> None:
        """Look once a second, and at a signal, whether to stop: the looks of uvicorn, ten a second, were most of an idle service's work."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), TICK_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)


def with_peer(app: ASGIApp, trusted: Sequence[str]) -> ASGIApp:
    """Return the app with uvicorn's forwarded addresses, which remembers the address of the connection itself.

    The addresses of headers are for the log; only the connection's own shows that a request comes from a trusted proxy.

    Parameters
    ----------
    trusted : addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count
    """
    forwarded = ProxyHeadersMiddleware(app, list(trusted))  # type: ignore[arg-type]

    async def outermost(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[PEER] = scope["client"]
        await forwarded(scope, receive, send)  # type: ignore[arg-type]

    return outermost
