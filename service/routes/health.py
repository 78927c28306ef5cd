"""What operators ask: alive, ready, which version, how much."""

import asyncio
import platform
from dataclasses import asdict
from typing import Any, Literal

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from calibrant import kernel
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.dependencies import AppSettings, TheConnection
from calibrant_server.service.http.errors import StoreUnavailable
from calibrant_server.service.http.prometheus import registry_of_models, registry_of_operation
from calibrant_server.service.openapi.schema import answers, problems
from calibrant_server.service.version import API_VERSION, VERSION

router = APIRouter(tags=["operations"], default_response_class=Response)
READY_TIMEOUT_S = 2.0
JSON = "application/json"
READY_COUNTS = ("parked_entries", "unsealed_models", "dead_letters", "stalled_partitions")


class StatusResponse(BaseModel):
    """Whether the service is well."""

    status: str


class ReadyAnswer(StatusResponse):
    """Whether requests can be served, and what waits for an operator."""

    parked_entries: int = Field(
        description="Acknowledged batches that could not be merged and wait for a replay"
    )
    unsealed_models: int = Field(
        description="Models of which a damaged pane keeps a cohort from being sealed"
    )
    dead_letters: int = Field(description="Acknowledged batches that could not be merged")
    stalled_partitions: int = Field(
        description="Parts of the queue that have a backlog and do not advance"
    )
    store_full: bool = Field(
        description="The store's memory is full: batches are rejected; reads and deletions are served"
    )


class KernelResponse(BaseModel):
    """Which code fills panes. Both give the same results; numpy takes longer."""

    filled_by: Literal["kernel", "numpy"]
    variant: Literal["avx2", "baseline"] | None = Field(
        description="Instructions that the kernel uses; null where numpy fills."
    )
    reason: str | None = Field(description="Why the kernel does not fill; null where it does.")


class VersionResponse(BaseModel):
    """What runs."""

    version: str
    api: str
    python: str
    kernel: KernelResponse


@router.get(
    "/livez",
    operation_id="getLive",
    responses={200: answers(StatusResponse, "The process responds"), **problems()},
)
async def get_live() -> Response:
    """Return whether the process responds."""
    return Response(orjson.dumps({"status": "ok"}), media_type=JSON)


@router.get(
    "/readyz",
    operation_id="getReady",
    responses={200: answers(ReadyAnswer, "The store takes writes"), **problems()},
)
async def get_ready(connection: TheConnection) -> Response:
    """Return whether the store takes writes, so that requests can be served."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            is_full = await connection.check()
            with engine_errors():
                troubles = await connection.inbox.troubles()
    except TimeoutError as error:
        raise StoreUnavailable() from error
    # Not a reason to turn requests away: every other request is served.
    body = {name: getattr(troubles, name) for name in READY_COUNTS}
    body = {"status": "ready", **body, "store_full": is_full}
    return Response(orjson.dumps(body), media_type=JSON)


@router.get(
    "/version",
    operation_id="getVersion",
    responses={200: answers(VersionResponse, "The version"), **problems()},
)
async def get_version() -> Response:
    """Return the versions of the service."""
    body = {
        "version": VERSION,
        "api": API_VERSION,
        "python": platform.python_version(),
        "kernel": asdict(kernel.status()),
    }
    return Response(orjson.dumps(body), media_type=JSON)


@router.get(
    "/metrics",
    operation_id="getServiceMetrics",
    responses={
        200: {
            "description": "Prometheus",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problems(),
    },
)
async def get_service_metrics(request: Request, settings: AppSettings) -> Response:
    """Return the service's own metrics for Prometheus, with each model's records and the evidence of its alarm."""
    text = generate_latest(request.app.state.meters.registry)
    text += await _of_operation(request)
    if settings.metrics_models:
        most = settings.metrics_models
        summaries, tallies = await _of_models(request, most)
        text += generate_latest(registry_of_models(summaries, tallies, most))
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _of_operation(request: Request) -> bytes:
    """What waits for an operator; no series while the store is away, for a zero would be believed."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            with engine_errors():
                troubles = await request.app.state.connection.inbox.troubles()
    except (TimeoutError, StoreUnavailable):
        return b""
    return generate_latest(registry_of_operation(troubles))


async def _of_models(request: Request, most: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metrics of models' alarms and records; none while the store is unavailable, so that all others are still returned."""
    inbox = request.app.state.connection.inbox
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            with engine_errors():
                return await inbox.alarms.summaries(), await inbox.all_tallies(most)
    except (TimeoutError, StoreUnavailable):
        return {}, {}
