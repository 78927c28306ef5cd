"""Series for Prometheus: of this instance and its store, and of each model.

There are two endpoints because models are the same on every instance: scraped from each, they would multiply alerts.
"""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.dependencies import AppSettings, Reader, TheConnection
from calibrant_server.service.openapi.schema import problems

router = APIRouter(tags=["operations"], default_response_class=Response)
RESPONSES = {
    200: {
        "description": "Prometheus",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    },
    **problems(),
}


@router.get("/metrics", operation_id="getServiceMetrics", responses=RESPONSES)
async def get_service_metrics(request: Request) -> Response:
    """Return the series of this instance, of all its processes, and of the store's queues, at most a second old."""
    text: bytes = await request.app.state.service_series.get()
    return _exposition(text)


@router.get("/metrics/models", operation_id="getModelSeries", responses=RESPONSES)
async def get_model_series(
    request: Request, caller: Reader, settings: AppSettings, connection: TheConnection
) -> Response:
    """Return the series of your key's models for Prometheus: calibration error, map, labels, evidence, records."""
    with engine_errors():
        every = await connection.registry.list(caller.tenant)
        configs = [each for each in every if caller.may_use(each.model)]
        series = request.app.state.model_series
        registry = await series.registry(caller.tenant, configs, settings.metrics_models)
    return _exposition(generate_latest(registry))


def _exposition(text: bytes) -> Response:
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
