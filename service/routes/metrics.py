"""Results of a window: the reads that the library declares, one file each in `calibrant/results`; several models compared; and the
catalogues of metrics and calibration maps."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.figures.comparison import draw_dots, draw_radar
from calibrant.metrics import requested
from calibrant.results.catalogue import CalibratorCatalogue, MetricCatalogue, calibrators, catalogue
from calibrant.results.metrics import metrics
from calibrant.results.reads import find_reads
from calibrant_server.service.engine import model_of
from calibrant_server.service.http.parameters import PATTERN, ChosenFormat, media_type_of
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.declared import add_route
from calibrant_server.service.reads.operations import Access, Operations, Reader
from calibrant_server.service.reads.parts import require_label
from calibrant_server.service.reads.queries import (
    ClockQuery,
    reject_costly,
    resolved_query,
    unanswerable,
)
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.representations import (
    Draw,
    WindowShown,
    drawn,
    estimates,
    or_drawn,
    part_of,
)
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.workers.queries.query import declared_query

declared = Operations()
for _read in find_reads().values():
    add_route(declared, _read)


AnyCaller = Annotated[Caller, Depends(needs("read", "maps:read", "ingest"))]
listed = Operations("catalogue")


class CatalogueParameters(BaseModel):
    """Which metrics."""

    model_config = ConfigDict(extra="forbid")

    search: str | None = Field(
        None,
        max_length=100,
        description="Part of a slug, a title, a search word or an author, such as MR-ECE or Mimori. Default: all metrics.",
    )


@listed.operation(
    "GET /v1/metrics",
    AnyCaller,
    success(part_of(MetricCatalogue), "The metrics"),
    query=CatalogueParameters,
)
async def list_metrics(access: Access) -> dict[str, Any]:
    """List the metrics with their papers, formulas, options and search words."""
    return catalogue(access.query.search).to_dict()


@listed.operation(
    "GET /v1/calibrators", AnyCaller, success(part_of(CalibratorCatalogue), "The methods")
)
async def list_calibrators(access: Access) -> dict[str, Any]:
    """List the methods of recalibration with their papers and options."""
    return calibrators().to_dict()


router = Operations("metrics")

MAX_MODELS = 6
FIGURES: dict[str, Draw] = {"dots": draw_dots, "radar": draw_radar}
SEGMENTATION = "dice,ml1_ece,ml1_ace,ml1_mce,brier"
OTHERS = "accuracy,ece,ace,mce,classwise_ece,brier"


class ComparisonParameters(ClockQuery, declared_query(metrics)):  # type: ignore[misc]
    """Which models, which metrics, and how they are computed."""

    models: str = Field(
        max_length=1000,
        pattern=f"^{PATTERN}(,{PATTERN})*$",
        description="Ids of the other models, separated by commas; at most five.",
    )
    figure: Literal["dots", "radar"] = Field(
        "dots", description="What an image shows: dots with intervals, or the radar of the paper."
    )
    format: ChosenFormat = None


class ModelMetrics(BaseModel):
    """One model's metrics."""

    window: WindowShown
    state_version: str
    n_predictions: int
    n_ratings: int
    metrics: estimates()  # type: ignore[valid-type]


class ComparisonResponse(BaseModel):
    """The metrics of every model, and the radar's numbers."""

    models: list[str]
    raters: str
    metrics: dict[str, ModelMetrics] = Field(description="Metrics by model.")
    relative: dict[str, dict[str, float | None]] = Field(
        description="By metric and model: the distance from the metric's best, divided by the worst model's."
    )


COMPARED: dict[str, Any] = success(
    ComparisonResponse,
    "The models compared, or a figure",
    ETag="Changes with the states and the query.",
)


@router.operation(
    "GET /v1/models/{model}/comparison",
    Reader,
    or_drawn(COMPARED),
    406,
    query=ComparisonParameters,
    headers=("if_none_match", "prefer"),
)
async def compare_models(access: Access) -> Response:
    """Return the metrics of several models over the same window as JSON, or as a figure in SVG or PNG."""
    query, first = access.query, await access.config()
    names = list(dict.fromkeys([first.model, *query.models.split(",")]))
    if not 2 <= len(names) <= MAX_MODELS:
        detail = f"Received {len(names) - 1} other models; expected 1 to {MAX_MODELS - 1}."
        raise unanswerable("/models", "range", detail)
    others = [await model_of(access.connection, access.caller, name) for name in names[1:]]
    for config in (first, *others):
        require_label(config, query.slice)
    if "metrics" not in query.model_fields_set:
        chosen = SEGMENTATION if first.task == "segmentation" else OTHERS
        query = query.model_copy(update={"metrics": chosen})
    read_queries = {
        config.model: ReadQuery(resolved_query(query, config), config, query)
        for config in (first, *others)
    }
    reject_costly("/models", query, n_slices=len(names))
    media_type = media_type_of(query.format, access.request)
    return await access.reads.together(
        access.request,
        read_queries,
        lambda found: joined(found, query.raters),
        media_type,
        drawn(FIGURES[query.figure], media_type),
    )


def joined(found: dict[str, Any], raters: str) -> dict[str, Any]:
    """Return the response made of several models' metrics."""
    shown = ("window", "state_version", "n_predictions", "n_ratings", "metrics")
    keys = list(next(iter(found.values()))["metrics"])
    values = {
        key: {model: results["metrics"][key]["value"] for model, results in found.items()}
        for key in keys
    }
    return {
        "models": list(found),
        "raters": raters,
        "metrics": {
            model: {name: results[name] for name in shown} for model, results in found.items()
        },
        "relative": {key: relative(key, by_model) for key, by_model in values.items()},
    }


def relative(key: str, values: dict[str, float | None]) -> dict[str, float | None]:
    """Return each model's distance from the metric's best value, divided by the largest; all 0 if no model errs."""
    metric = requested([key])[0].metric
    best = {"zero": 0.0, "one": 1.0, "lower": metric.range[0], "higher": metric.range[1]}[
        metric.direction
    ]
    away = {
        model: None if v is None or best is None else abs(v - best) for model, v in values.items()
    }
    worst = max((each for each in away.values() if each is not None), default=0.0)
    return {
        model: None if each is None else each / worst if worst else 0.0
        for model, each in away.items()
    }
