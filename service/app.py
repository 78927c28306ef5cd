"""The app: discovered routes, the engine behind them, and problems for errors."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.telemetry import TelemetryConfig

from calibrant.core.extras import pip_install
from calibrant_server.service.engine import Connection, connected
from calibrant_server.service.http import problem_responses
from calibrant_server.service.http.connections import SERVED_SHARE
from calibrant_server.service.http.event_streams import Streams
from calibrant_server.service.http.middleware import (
    CORS_METHODS,
    CORS_REQUEST_HEADERS,
    CORS_RESPONSE_HEADERS,
    RequestMiddleware,
    SecurityHeaders,
)
from calibrant_server.service.http.prometheus import ServiceMetrics
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.openapi.schema import document
from calibrant_server.service.pages import rendering
from calibrant_server.service.reads.direct import DirectRoutes
from calibrant_server.service.reads.fleet_flags import Fleet
from calibrant_server.service.reads.observation import observe
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.routes import routers
from calibrant_server.service.security.admission import Admission, ServedRequests
from calibrant_server.service.security.key_file import KeyRefresh, load_keyring, refreshed
from calibrant_server.service.security.keys import Keyring
from calibrant_server.service.security.proxy_sign_in import proxy_sign_in
from calibrant_server.service.security.rates import Rates
from calibrant_server.service.settings import Settings
from calibrant_server.service.startup import connection_limit, joined
from calibrant_server.service.version import API_VERSION

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
OFF: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}


class TelemetryUnavailable(RuntimeError):
    """Traces are requested, and the packages that send them are not installed."""


def telemetry(environment: Mapping[str, str] = os.environ) -> TelemetryConfig:
    """Return the settings of FastAPI: one span per request, sent to the endpoint of the environment.

    Raises
    ------
    TelemetryUnavailable
    """
    requested = [name for name in ENDPOINTS if environment.get(name)]
    if not requested or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return OFF
    missing = [name for name in PACKAGES if not _is_installed(name)]
    if missing:
        raise TelemetryUnavailable(
            f"{requested[0]} requests traces, which need the package {missing[0]!r}. "
            f"Install the extra `telemetry`: {pip_install('telemetry')}, or unset the variable."
        )
    return {**OFF, "tracing": True, "operation_spans": False, "auto_configure": True}


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def create_app(
    settings: Settings | None = None,
    connection: Connection | None = None,
) -> FastAPI:
    """Return the service; without a `connection` it starts or joins the engine itself."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async def join(reached: Connection, stack: AsyncExitStack) -> None:
            if connection is None:
                set_up_state(app, settings, reached)
            await stack.enter_async_context(refreshed(app.state.key_refresh))
            stack.push_async_callback(app.state.rates.close)

        async with AsyncExitStack() as stack:
            if connection is None:
                await stack.enter_async_context(joined(app, lambda: connected(settings), join))
            else:
                await join(connection, stack)
            yield

    app = FastAPI(
        telemetry=telemetry(),
        title="Calibrant",
        version=API_VERSION,
        summary="Scores the calibration of deployed models.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.connection = None
    app.state.waits_for_store = False
    app.state.start_error = None
    app.state.announce = lambda: None  # called once, when the service has the store
    app.state.keyring = load_keyring(settings)
    app.state.proxy = proxy_sign_in(settings)
    app.state.admission = Admission(settings.max_bytes_in_hand)
    app.state.served = ServedRequests(max(1, int(SERVED_SHARE * connection_limit())))
    app.state.streams = Streams()
    app.state.metrics = ServiceMetrics(app.state.admission)
    if connection is not None:
        set_up_state(app, settings, connection)
    app.state.routes = [route for router in routers() for route in router.routes]
    # `include_router` would analyse every function again, 50 ms per app.
    app.router.routes.extend(app.state.routes)
    problem_responses.install(app)
    rendering.install(app)
    app.openapi = lambda: _document_once(app)  # type: ignore[method-assign]
    app.add_middleware(
        RequestMiddleware,
        metrics=app.state.metrics,
        log_requests=settings.log_requests,
        security=SecurityHeaders(settings.allowed_origins or ()),
        direct=DirectRoutes(app.state.routes).find,
    )
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_REQUEST_HEADERS,
            expose_headers=CORS_RESPONSE_HEADERS,
        )
    return app


def set_up_state(app: FastAPI, settings: Settings, connection: Connection) -> None:
    """Give the routes their services in front of the engine."""
    keyring: Keyring = app.state.keyring
    app.state.ingest = IngestService(settings, connection, app.state.admission, keyring)
    app.state.reads = ReadService(connection)
    app.state.fleet = Fleet(app.state.reads)
    path = None if settings.keys else settings.keys_file
    limits = settings.tenant_rate, settings.key_rate
    app.state.rates = Rates(connection.inbox.rates, *limits)
    observe(app, connection)
    app.state.key_refresh = KeyRefresh(app.state.keyring, path, connection.inbox.access_keys)
    app.state.connection = connection  # last: the app serves from now on


def _document_once(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = document(app)
    return app.openapi_schema
