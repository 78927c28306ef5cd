"""Metrics over a window: which, over which data, binned and weighed how."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model

from calibrant.metrics import DEFAULT_METRICS, METRICS
from service.dependencies import IfNoneMatch, Prefer, Reader, TheConnection, TheReading
from service.names import ModelId
from service.openapi import answers, problems
from service.queries import BinningQuery, asked_of, unanswerable
from service.reading import Ask
from service.reception import model_of
from workers.state.registry import ModelConfig

router = APIRouter(tags=["read"], default_response_class=Response)


class MetricsQuery(BinningQuery):
    """Which metrics, and how they are computed."""

    metrics: str | None = Field(
        None, max_length=4000, description="Slugs with commas between; without it a sensible dozen."
    )


class WindowShown(BaseModel):
    """The window after it was resolved to whole panes: half open, RFC 3339."""

    from_: str = Field(alias="from")
    to: str


class Estimate(BaseModel):
    """One estimate: null with a reason where there is none."""

    model_config = ConfigDict(extra="allow")

    value: float | None
    interval: list[float | None] | None = None
    null_mean: float | None = None
    null_q95: float | None = None
    n: int | None = None
    n_ratings: int | None = None
    reason: str | None = None
    error_bound: float | None = None


def _described(metric: Any) -> Any:
    text = ". ".join(str(part) for part in (metric.title, getattr(metric, "direction", "")) if part)
    return Field(None, title=metric.title, description=text)


# One source: what METRICS holds is what the answer may hold.
Estimates: type[BaseModel] = create_model(
    "Estimates",
    __doc__="Estimates by slug.",
    **{slug: (Estimate | None, _described(metric)) for slug, metric in sorted(METRICS.items())},
)


class MetricsAnswer(BaseModel):
    """Metrics of a model over a window."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int
    n_ratings: int
    state_version: str
    metrics: Estimates  # type: ignore[valid-type]


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
    return await reading.answer(request, Ask("metrics", config, metrics_params(query, config), query))


def metrics_params(query: MetricsQuery, config: ModelConfig) -> dict[str, Any]:
    """Return the query as the workers take it: known metrics, a scope and bins that can be had."""
    return {**asked_of(query, config), "metrics": metric_slugs(query.metrics)}


def metric_slugs(text: str | None) -> list[str]:
    """Return the slugs in a list with commas, each once; an unknown one is refused with the known."""
    if text is None:
        return list(DEFAULT_METRICS)
    slugs = list(dict.fromkeys(slug.strip() for slug in text.split(",")))
    unknown = [slug for slug in slugs if slug not in METRICS]
    if unknown:
        named = ", ".join(repr(slug[:40]) for slug in unknown[:5])
        known = ", ".join(sorted(METRICS))
        raise unanswerable("/metrics", "unknown_metric", f"There is no metric {named}; known: {known}.")
    return slugs
