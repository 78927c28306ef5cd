"""Metrics of a model over a window, as one result, as a series, or by slice value."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.durations import parse_duration
from calibrant.figures.estimates import draw_metrics
from calibrant_server.service.http.parameters import SliceKey
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import Estimates, WindowShown
from calibrant_server.service.reads.figures import (
    MEDIA_TYPES,
    Format,
    drawn,
    media_type_of,
    or_drawn,
)
from calibrant_server.service.reads.metric_work import reject_costly
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery, Duration, unanswerable
from calibrant_server.service.reads.service import JSON
from calibrant_server.service.reads.short_answers import (
    rendered_short,
    short_metrics,
)
from calibrant_server.service.reads.table_formats import or_table, table_type
from calibrant_server.service.reads.tables import METRICS, metric_rows, rendered
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.query import Query as AnyQuery
from calibrant_server.workers.store.model_config import ModelConfig

router = APIRouter(tags=["metrics"], default_response_class=Response)


class MetricsParameters(ClockQuery, AgainstQuery, MetricsQuery):
    """The metrics, the data, and the parts by which the data are divided."""

    every: Duration | None = Field(
        None,
        description="Return a series: the metrics of each part of this length, a multiple of the panes (P1D).",
    )
    by: SliceKey | None = Field(
        None, description="A slice key: the metrics of each of its values, in `slices`."
    )
    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )
    include: Literal["details"] | None = Field(
        None,
        description="`details`: also how each value, interval and null reference was computed, bounds of errors, labels by bin.",
    )

    def resolved(self, config: ModelConfig) -> AnyQuery:
        if self.by is not None and self.slice is not None:
            raise unanswerable("/by", "one_of", "Received both slice and by; expected one of them.")
        query = super().resolved(config)
        is_compared = self.against is not None
        if is_compared and isinstance(query, MetricsQuery):
            reject_costly("/against", query, is_compared=True)
        if self.every is None:
            return query
        every_s = parse_duration(self.every)
        if every_s % config.pane_s:
            detail = f"Received every={self.every}; expected a whole number of panes of {config.pane_s} s."
            raise unanswerable("/every", "whole_panes", detail)
        series: AnyQuery = MetricsSeriesQuery.model_construct(
            **dict(query), every_s=int(every_s), is_compared=is_compared
        )
        return series


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
    tolerance: float | None = None
    detectable: dict[str, Any] | None = Field(
        None,
        description="With `tolerance`: the smallest intercept, change of slope and local error that are detected with 80 % power at the "
        "5 % level, with the data of `now`, `in_30_days` and `in_90_days`.",
    )
    against: dict[str, Any] | None = Field(
        None,
        description="The other side: its counts, and the amount of data that both sides share.",
    )
    clock: str | None = Field(
        None, description="`event` or `sealed`; present if the model declares a label horizon."
    )
    sealed_to: str | None = Field(None, description="End of the last sealed cohort.")
    matured: bool | None = Field(
        None, description="Whether all of the window's cohorts are sealed."
    )
    series: list[dict[str, Any]] | None = Field(
        None, description="With `every`: one object per part."
    )
    events: list[dict[str, str]] | None = Field(
        None, description="With `every`: dated events of the model in the window, if there are any."
    )
    slices: dict[str, dict[str, Any]] | None = Field(
        None, description="With `by`: one result per value."
    )


@router.get(
    "/v1/models/{model}/metrics",
    operation_id="getMetrics",
    responses=or_drawn(
        or_table(
            success(MetricsResponse, "The metrics", ETag="Changes with the state and the query.")
        )
    ),
)
async def get_metrics(
    read: TheReadAccess, query: Annotated[MetricsParameters, Query()]
) -> Response:
    """Compute any set of metrics over a window; as JSON, as a table with one row per metric and part, or as a figure."""
    media_type = table_type(read.request, list(MEDIA_TYPES.values()))
    if query.format is not None or media_type is None:
        media_type = media_type_of(query.format, read.request)
        render = drawn(draw_metrics, media_type)
    else:
        render = rendered(media_type, METRICS, metric_rows)
    is_short = media_type == JSON and query.include is None
    if is_short:
        render = rendered_short(short_metrics)
    read_query = await read.read_query(query, short="short" if is_short else None)
    if query.by is not None:
        return await read.reads.respond_each(read.request, read_query, query.by, media_type, render)
    return await read.reads.respond(read.request, read_query, media_type, render)
