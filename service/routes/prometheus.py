"""Series for Prometheus: of this instance and its store, and of each model.

There are two endpoints because models are the same on every instance: scraped from each, they would multiply alerts.
"""

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.dependencies import AppSettings, Reader, TheConnection
from calibrant_server.service.http.errors import StoreUnavailable
from calibrant_server.service.http.prometheus import registry_of_operation, registry_of_processes
from calibrant_server.service.openapi.schema import problems
from calibrant_server.service.process_board import ProcessMetrics

router = APIRouter(tags=["operations"], default_response_class=Response)
READY_TIMEOUT_S = 2.0
RESPONSES = {
    200: {
        "description": "Prometheus",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    },
    **problems(),
}


@router.get("/metrics", operation_id="getServiceMetrics", responses=RESPONSES)
async def get_service_metrics(request: Request) -> Response:
    """Return the series of this instance, of all its processes, and of the store's queues for Prometheus."""
    state = request.app.state
    own = state.metrics.collected(), registry_of_processes(ProcessMetrics(state.board))
    return _exposition(*own, await _of_operation(request))


@router.get("/metrics/models", operation_id="getModelSeries", responses=RESPONSES)
async def get_model_series(
    request: Request, caller: Reader, settings: AppSettings, connection: TheConnection
) -> Response:
    """Return the series of your key's models for Prometheus: calibration error, map, labels, evidence, records."""
    with engine_errors():
        configs = await connection.registry.list(caller.tenant)
        series = request.app.state.model_series
        registry = await series.registry(caller.tenant, configs, settings.metrics_models)
    return _exposition(registry)


def _exposition(*registries: CollectorRegistry | None) -> Response:
    text = b"".join(generate_latest(each) for each in registries if each is not None)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _of_operation(request: Request) -> CollectorRegistry | None:
    """What waits for an operator; no series while the store is unavailable, because a zero would be believed."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            with engine_errors():
                troubles = await request.app.state.connection.inbox.troubles()
    except (TimeoutError, StoreUnavailable):
        return None
    return registry_of_operation(troubles)
