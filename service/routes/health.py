"""Routes for operators: liveness, readiness, version, and series for Prometheus: of this instance and its store, and of each model.

There are two endpoints of series because models are the same on every instance: scraped from each, they would multiply alerts."""

import platform
from dataclasses import asdict
from typing import Literal

import orjson
from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from calibrant import kernel
from calibrant_server.service.http.prometheus import Series
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.model_series import model_series
from calibrant_server.service.reads.observation import Readiness
from calibrant_server.service.reads.operations import Access, Operations, Reader
from calibrant_server.service.version import API_VERSION, VERSION

router = Operations("operations")
JSON = "application/json"
READY_COUNTS = (
    "parked_entries",
    "unsealed_models",
    "dead_letters",
    "stalled_partitions",
    "files_unavailable",
)


class StatusResponse(BaseModel):
    """Health of the service."""

    status: str


class ReadyResponse(StatusResponse):
    """Whether requests can be served, and what waits for an operator."""

    parked_entries: int = Field(
        description="Number of acknowledged batches that could not be merged and wait for a replay"
    )
    unsealed_models: int = Field(
        description="Number of models in which a damaged pane keeps a cohort from being sealed"
    )
    dead_letters: int = Field(description="Number of acknowledged batches that could not be merged")
    stalled_partitions: int = Field(
        description="Number of partitions of the queue that have a backlog and do not advance"
    )
    files_unavailable: bool = Field(
        description="The files of old days cannot be read or written: windows that need them are not served"
    )
    store_full: bool = Field(
        description="The store's memory is full: batches are rejected; reads and deletions are served"
    )


class KernelResponse(BaseModel):
    """Compiled code that fills panes."""

    variant: Literal["avx2", "baseline"] = Field(description="Instructions that the kernel uses.")


class VersionResponse(BaseModel):
    """Versions of the running service."""

    version: str
    api: str
    python: str
    kernel: KernelResponse


@router.operation("GET /livez", None, success(StatusResponse, "The process responds"))
async def get_live(access: Access) -> Response:
    """Return whether the process responds."""
    return Response(orjson.dumps({"status": "ok"}), media_type=JSON)


@router.operation("GET /readyz", None, success(ReadyResponse, "The store accepts writes"))
async def get_ready(access: Access) -> Response:
    """Return whether the store accepts writes, so that requests can be served; found out at most once per second."""
    readiness: Readiness = await access.request.app.state.readiness.get()
    # Not a reason to turn requests away: every other request is served.
    body = {name: getattr(readiness.troubles, name) for name in READY_COUNTS}
    body = {"status": "ready", **body, "store_full": readiness.is_store_full}
    return Response(orjson.dumps(body), media_type=JSON)


@router.operation("GET /version", None, success(VersionResponse, "The version"))
async def get_version(access: Access) -> Response:
    """Return the versions of the service."""
    body = {
        "version": VERSION,
        "api": API_VERSION,
        "python": platform.python_version(),
        "kernel": asdict(kernel.status()),
    }
    return Response(orjson.dumps(body), media_type=JSON)


SERIES = {"description": "Prometheus", "content": {"text/plain": {"schema": {"type": "string"}}}}


@router.operation("GET /metrics", None, SERIES)
async def get_service_metrics(access: Access) -> Response:
    """Return the series of this instance and of the store's queues, at most a second old."""
    text: bytes = await access.request.app.state.service_series.get()
    return _exposition(text)


@router.operation("GET /metrics/models", Reader, SERIES)
async def get_model_series(access: Access) -> Response:
    """Return the series of your key's models for Prometheus: calibration error, map, labels, evidence, records."""
    caller = access.caller
    every = await access.connection.registry.list(caller.tenant)
    configs = [each for each in every if caller.may_use(each.model)]
    found = await model_series(access.reads, configs, access.settings.metrics_models)
    return _exposition(generate_latest(Series(found)))


def _exposition(text: bytes) -> Response:
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
