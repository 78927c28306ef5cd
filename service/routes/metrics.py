"""Metrics over a window: which, over which data, binned and weighed how."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.dependencies import IfNoneMatch, Prefer, Reader, TheConnection, TheReading
from service.document import answers, problems
from service.estimates import Estimates, WindowShown, metric_slugs
from service.names import ModelId
from service.queries import BinningQuery, asked_of
from service.reading import Ask
from service.reception import model_of
from workers.state.registry import ModelConfig

router = APIRouter(tags=["read"], default_response_class=Response)


class MetricsQuery(BinningQuery):
    """Which metrics, and how they are computed."""

    metrics: str | None = Field(
        None, max_length=4000, description="Slugs with commas between; without it a sensible dozen."
    )


class MetricsAnswer(BaseModel):
    """Metrics of a model over a window."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int
    n_ratings: int
    state_version: str
    metrics: Estimates


@router.get(
    "/v1/models/{model}/metrics",
    operation_id="getMetrics",
    responses={
        200: answers(MetricsAnswer, "The metrics", ETag="State and query."),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_metrics(
    model: ModelId,
    request: Request,
    caller: Reader,
    query: Annotated[MetricsQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Compute any set of metrics over a window."""
    config = await model_of(connection, caller, model)
    return await reading.answer(
        request, Ask("metrics", config, metrics_params(query, config), query)
    )


def metrics_params(query: MetricsQuery, config: ModelConfig) -> dict[str, Any]:
    """Return the query as the workers take it: known metrics, a scope and bins that can be had."""
    return {**asked_of(query, config), "metrics": metric_slugs(query.metrics)}
