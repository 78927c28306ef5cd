"""Metrics over a window: which, over which data, binned and weighed how."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.dependencies import Reader, TheConnection, TheReading
from calibrant_server.service.http.headers import IfNoneMatch, Prefer
from calibrant_server.service.http.identifiers import ModelId
from calibrant_server.service.ingest.service import model_of
from calibrant_server.service.openapi.schema import answers, problems
from calibrant_server.service.reads.compare import AgainstQuery, compared
from calibrant_server.service.reads.estimates import Estimates, WindowShown, metric_slugs
from calibrant_server.service.reads.queries import (
    BinningQuery,
    Duration,
    MetricBinning,
    OptionsQuery,
    asked_of,
    unanswerable,
)
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.store.durations import parse_duration
from calibrant_server.workers.store.registry import ModelConfig

router = APIRouter(tags=["read"], default_response_class=Response)


class MetricsQuery(BinningQuery, AgainstQuery, OptionsQuery):
    """Which metrics, and how they are computed."""

    binning: MetricBinning = Field(  # type: ignore[assignment]
        "equal_width",
        description="`hard` and `soft` are memberships of the `ml1_*` metrics; others need raw rows.",
    )

    metrics: str | None = Field(
        None, max_length=4000, description="Slugs with commas between; without it a sensible dozen."
    )
    every: Duration | None = Field(
        None, description="A series: metrics of each part of this length, whole panes (P1D)."
    )
    by: Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,128}$")] | None = Field(
        None, description="A slice key: the metrics of each of its values, in `slices`."
    )


class MetricsResponse(BaseModel):
    """Metrics of a model over a window."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int | None = None
    n_ratings: int | None = None
    state_version: str | None = None
    metrics: Estimates | None = None
    label_coverage: dict[str, Any] | None = Field(
        None,
        description="Labelled share overall, by bin, its gradient in the score, delays of labels.",
    )
    against: dict[str, Any] | None = Field(
        None,
        description="What it is compared with, how much that holds, and how much both sides share.",
    )
    clock: str | None = Field(
        None, description="Where the model declares a label horizon: event or sealed."
    )
    sealed_to: str | None = Field(None, description="Where the last sealed cohort ended.")
    matured: bool | None = Field(
        None, description="Whether all of the window's cohorts are sealed."
    )
    series: list[dict[str, Any]] | None = Field(
        None, description="With `every`: one object a part."
    )
    slices: dict[str, dict[str, Any]] | None = Field(
        None, description="With `by`: one answer a value."
    )


@router.get(
    "/v1/models/{model}/metrics",
    operation_id="getMetrics",
    responses={
        200: answers(MetricsResponse, "The metrics", ETag="State and query."),
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
    ask = await compared(metrics_ask(query, config), query, caller, connection, reading)
    if query.by is not None:
        return await reading.answer_each(request, ask, query.by)
    return await reading.answer(request, ask)


def metrics_ask(query: MetricsQuery, config: ModelConfig) -> ReadQuery:
    """Return the question: one answer over the window, or a series over its parts."""
    params = metrics_params(query, config)
    params.pop("by", None)
    every = params.pop("every", None)
    if query.by is not None and query.slice is not None:
        raise unanswerable("/by", "one_of", "use one of slice, by")
    if every is None:
        return ReadQuery("metrics", config, params, query)
    every_s = parse_duration(every)
    if every_s % config.pane_s:
        detail = f"every is a whole number of panes, which are {config.pane_s} s long"
        raise unanswerable("/every", "whole_panes", detail)
    return ReadQuery("metrics_series", config, {**params, "every_s": int(every_s)}, query)


def metrics_params(query: MetricsQuery, config: ModelConfig) -> dict[str, Any]:
    """Return the query as the workers take it: known metrics, a scope and bins that can be had."""
    return {**asked_of(query, config), "metrics": metric_slugs(query.metrics)}
