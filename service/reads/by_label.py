"""Reads of multi-label models: one result per label, with the means over labels of metrics.

Each label is a slice of its own. Without one in the request, a read returns all of them; the alarm alone evaluates the labels of a row
together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from fastapi import Request, Response
from pydantic import BaseModel, Field

from calibrant.figures.class_reliability import MAX_PANELS
from calibrant.metrics.estimate import Estimate
from calibrant.results import Report
from calibrant.results.metric_work import MAX_WORK
from calibrant.results.reads import Read
from calibrant.results.report import of_labels
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.queries import of_slices, reject_costly, unanswerable
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.representations import IMAGES, TABLES, WindowShown, drawn
from calibrant_server.service.reads.service import JSON, ReadService, Render, span
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.query import Declared, Query
from calibrant_server.workers.store.model_config import LABEL_SLICE, ModelConfig

# Units of work that the metrics of one label may take: 15 metrics that are not slow.
WORK_PER_LABEL = 50
COUNTS = ("n_predictions", "n_labelled", "n_ratings", "n_units", "raters", "scope", "task", "n_labels")  # fmt: skip


class LabelsResponse(BaseModel):
    """Results of a multi-label model."""

    model: str
    window: WindowShown
    labels: dict[str, dict[str, Any]] = Field(description="One result per label.")


class ClassesResponse(BaseModel):
    """Results of every class against the rest."""

    model: str
    window: WindowShown
    classes: dict[str, dict[str, Any]] = Field(description="One result per class.")


def is_by_label(read: Read[Any, Any], read_query: ReadQuery) -> bool:
    """Return whether a request of a multi-label model is for all of its labels."""
    view = read_query.view
    has_part = view.slice is not None or getattr(view, "by", None) is not None
    return not has_part and not read.needs.get("alarm")


def has_labels(read: Read[Any, Any]) -> bool:
    """Return whether a read has a result per label that its own result does not describe."""
    return not (read.in_parts or read.needs.get("alarm") or read.paged)


def reject_one_result(read: Read[Any, Any], read_query: ReadQuery, media_type: str) -> None:
    """Reject what cannot have all labels: most figures, a page of a list, what takes seconds, a comparison with the one window of a baseline."""
    comparison = read_query.comparison
    is_baseline = comparison is not None and comparison.against.by == "baseline"
    names = read_query.config.label_names or ()
    is_shown = media_type == JSON or (media_type in TABLES and read.in_parts)
    is_shown |= media_type in IMAGES and read.panels is not None and len(names) <= MAX_PANELS
    is_slow = not read.in_parts and read.is_slow(cast("Declared", read_query.query).plain())
    if read.paged or is_slow or is_baseline or not is_shown:
        require_label(read_query.config, None)


def require_label(config: ModelConfig, slice_: str | None) -> None:
    """Reject a request that would take the labels of a multi-label model for one event."""
    if config.label_names is not None and slice_ is None:
        detail = f"Received no label; expected one of the model's, as slice={LABEL_SLICE}:{config.label_names[0]}."
        raise unanswerable("/slice", "label_required", detail)


async def respond_by_label(
    reads: ReadService,
    request: Request,
    read_query: ReadQuery,
    media_type: str,
    render: Render | None,
) -> Response:
    """Respond to a read for every label, in one document."""
    config, names = read_query.config, read_query.config.label_names or []
    query = _bounded(read_query.query, len(names), read_query.comparison is not None)
    read_queries = {
        name: replace(read_query, query=query, slice=f"{LABEL_SLICE}:{name}") for name in names
    }
    return await reads.together(request, read_queries, partial(joined, config), media_type, render)


async def respond_by_class(
    read: Read[Any, Any], access: Access, query: Any, media_type: str
) -> Response:
    """Respond to a read for every class against the rest, in one document or figure."""
    config, panels = await access.config(), read.panels
    names = [str(each) for each in config.classes or range(config.n_classes)]
    if panels is None or len(names) > MAX_PANELS or media_type in TABLES or config.label_names:
        detail = f"Received scope={query.scope}; expected it for JSON or a figure of at most {MAX_PANELS} classes. Request one: class:NAME."
        raise unanswerable("/scope", "one_of", detail)
    read_queries = {
        name: await access.read_query(query.model_copy(update={"scope": f"class:{name}"}))
        for name in names
    }
    render = drawn(lambda found: panels(found["classes"]), media_type)
    return await access.reads.together(
        access.request,
        read_queries,
        lambda found: {"model": config.model, "window": span(found), "classes": found},
        media_type,
        render,
    )


def _bounded(query: Query, n_labels: int, is_compared: bool) -> Query:
    """Return a query for each label; reject more metrics than one label may have."""
    if isinstance(query, MetricsSeriesQuery):
        return of_slices(query, n_labels, is_compared)
    if isinstance(query, Declared) and hasattr(query.plain(), "listed"):
        at_most = max(MAX_WORK, WORK_PER_LABEL * n_labels)
        reject_costly("/metrics", query, n_labels, is_compared, at_most)
    return query


def joined(config: ModelConfig, found: dict[str, Any]) -> dict[str, Any]:
    """Return the results of all labels as one document, with the means of their metrics."""
    head = {"model": config.model, "window": span(found)}
    return {**head, **_means(found), "labels": found}


def _means(found: dict[str, Any]) -> dict[str, Any]:
    """Return the means over labels as the library computes them; nothing of results without metrics."""
    if not all("metrics" in each for each in found.values()):
        return {}
    reports = {
        name: Report({key: Estimate.from_dict(value, key) for key, value in each["metrics"].items()}, each)
        for name, each in found.items()
    }  # fmt: skip
    means = of_labels(reports, {})
    counts = {name: means.about[name] for name in COUNTS}
    return counts | {"metrics": {key: each.to_dict() for key, each in means.items()}}
