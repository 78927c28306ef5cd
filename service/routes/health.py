"""What operators ask: alive, ready, which version, how much."""

import asyncio
import platform
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from service.dependencies import AppSettings, TheConnection
from service.document import answers, problems
from service.engine import engine_errors
from service.errors import StoreUnavailable
from service.meters import registry_of_models
from service.version import API_VERSION, VERSION

router = APIRouter(tags=["operation"], default_response_class=Response)
READY_TIMEOUT_S = 2.0
JSON = "application/json"


class StatusAnswer(BaseModel):
    """Whether the service is well."""

    status: str


class VersionAnswer(BaseModel):
    """What runs."""

    version: str
    api: str
    python: str


@router.get(
    "/livez",
    operation_id="getLive",
    responses={200: answers(StatusAnswer, "The process answers"), **problems()},
)
async def get_live() -> Response:
    """Tell that the process answers."""
    return Response(orjson.dumps({"status": "ok"}), media_type=JSON)


@router.get(
    "/readyz",
    operation_id="getReady",
    responses={200: answers(StatusAnswer, "The store answers"), **problems()},
)
async def get_ready(connection: TheConnection) -> Response:
    """Tell whether the store answers, so that requests can be served."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await connection.check()
    except TimeoutError as error:
        raise StoreUnavailable() from error
    return Response(orjson.dumps({"status": "ready"}), media_type=JSON)


@router.get(
    "/version",
    operation_id="getVersion",
    responses={200: answers(VersionAnswer, "The version"), **problems()},
)
async def get_version() -> Response:
    """Return what runs."""
    body = {"version": VERSION, "api": API_VERSION, "python": platform.python_version()}
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
    if settings.metrics_models:
        most = settings.metrics_models
        summaries, tallies = await _of_models(request, most)
        text += generate_latest(registry_of_models(summaries, tallies, most))
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _of_models(request: Request, most: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the store tells of models' alarms and records; nothing while it is away, for the rest must still be told."""
    inbox = request.app.state.connection.inbox
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            with engine_errors():
                return await inbox.alarms.summaries(), await inbox.all_tallies(most)
    except (TimeoutError, StoreUnavailable):
        return {}, {}
