"""Serve over HTTP: `python -m service`."""

import logging
import os
import signal
import socket
import sys
from contextlib import suppress

# Matrices here are small, and threads of a linear algebra library would wait for each other on busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import uvicorn
from pydantic import ValidationError

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import engine_settings
from calibrant_server.service.http.connections import (
    OnceAMinute,
    Room,
    backlog,
    connection_limit,
    protocol_in,
    raise_descriptor_limit,
)
from calibrant_server.service.http.telemetry import TelemetryUnavailable
from calibrant_server.service.security.key_file import KeysUnreadable, load_keyring
from calibrant_server.service.security.keys import is_loopback
from calibrant_server.service.settings import Settings
from calibrant_server.service.startup import CannotListen, bound_to, report_start, sentence, unread
from calibrant_server.workers.logs import configure_logs
from calibrant_server.workers.memory import settle
from calibrant_server.workers.settings import SettingsError

SHUTDOWN_S = 15  # maximum wait for long polls at shutdown
EXIT_NOT_STARTED = 3

log = logging.getLogger("service")


def main() -> None:
    """Serve until stopped; refuse to listen for other machines without keys."""
    configure_logs()
    try:
        settings = Settings()
        engine_settings(settings)
        open_to_others = load_keyring(settings).is_open and not is_loopback(settings.host)
    except (ValidationError, SettingsError, KeysUnreadable) as error:
        sys.exit(f"calibrant: {sentence(error)}")
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
    settle()
    logging.getLogger("asyncio").addFilter(OnceAMinute())
    config = uvicorn.Config(
        app,
        http=protocol_in(Room(connection_limit())),
        ws="none",
        access_log=False,
        server_header=False,
        log_config=None,
        backlog=backlog(),
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = uvicorn.Server(config)
    # uvicorn stops at a signal and raises it again afterwards, which would end a clean stop as a death by signal.
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
    with suppress(KeyboardInterrupt):
        server.run(sockets)
    if app.state.start_error is not None:
        print(f"calibrant: {sentence(app.state.start_error)}", file=sys.stderr)
    if not server.started or app.state.start_error is not None:
        sys.exit(EXIT_NOT_STARTED)
