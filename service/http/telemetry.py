"""Traces of requests by OpenTelemetry, if the environment requests them.

FastAPI includes the spans and the export. Without one of the variables below it is off, so that nothing is sent.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec

from fastapi.telemetry import TelemetryConfig

from calibrant.core.extras import pip_install

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
