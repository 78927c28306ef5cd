"""Reads of several parts in one document: values of a slice, labels of a multi-label model, classes against the rest, and the
recommendation of `GET drift`.

Each label is a slice of its own. Without one in the request, a read returns all of them, with the means over labels of metrics; the alarm
alone evaluates the labels of a row together. A read of the current state that recommends something returns the recommendation of the alarm; one of
a certain window, clock or label policy, and a comparison, recommend by the labels that they name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, Field

from calibrant.figures.reliability import MAX_PANELS
from calibrant.inference.slice_test import slice_test
from calibrant.metrics.estimate import Estimate
from calibrant.results import Report
from calibrant.results.drift import drift
from calibrant.results.metric_work import MAX_WORK
from calibrant.results.queries import parts_of
from calibrant.results.reads import Read
from calibrant.results.report import of_labels
from calibrant_server.service.reads.known_slices import KnownSlices
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.queries import (
    WindowQuery,
    of_slices,
    reject_costly,
    resolved_query,
    unanswerable,
)
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.representations import IMAGES, TABLES, WindowShown
from calibrant_server.service.reads.service import JSON, ReadService
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.query import Declared, Query, query_for
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


@dataclass(frozen=True)
class Parts:
    """Queries by the name of their part, and what builds the document of their results."""

    queries: dict[str, ReadQuery]
    join: Callable[[dict[str, Any]], dict[str, Any]]


def labels_of(read_query: ReadQuery) -> Parts:
    """Return the parts of a read for every label."""
    config, names = read_query.config, read_query.config.label_names or []
    query = _bounded(read_query.query, len(names), read_query.comparison is not None)
    queries = {
        name: replace(read_query, query=query, slice=f"{LABEL_SLICE}:{name}") for name in names
    }
    return Parts(queries, partial(joined, config))


async def classes_of(read: Read[Any, Any], access: Access, query: Any, media_type: str) -> Parts:
    """Return the parts of a read for every class against the rest."""
    config = await access.config()
    names = [str(each) for each in config.classes or range(config.n_classes)]
    if len(names) > MAX_PANELS or media_type in TABLES or config.label_names:
        detail = f"Received scope={query.scope}; expected it for JSON or a figure of at most {MAX_PANELS} classes. Request one: class:NAME."
        raise unanswerable("/scope", "one_of", detail)
    queries = {
        name: await access.read_query(query.model_copy(update={"scope": f"class:{name}"}))
        for name in names
    }
    return Parts(
        queries, lambda found: {"model": config.model, "window": span(found), "classes": found}
    )


async def values_of(read_query: ReadQuery, name: str, reads: ReadService) -> Parts:
    """Return the parts of a read for every value of the slice `name`."""
    stored = await reads.inbox.slices(read_query.config)
    slices = [each for each in stored if each.startswith(f"{name}:")]
    if not slices:
        (await KnownSlices.of(reads.inbox, read_query.config)).reject_other_key(name)
    query = of_slices(read_query.query, len(slices), read_query.comparison is not None)
    queries = {
        each.partition(":")[2]: replace(read_query, query=query, slice=each) for each in slices
    }
    window = (await reads.window(read_query)).to_dict()

    def side_by_side(found: dict[str, Any]) -> dict[str, Any]:
        tests = {value: each["test"] for value, each in found.items() if "test" in each}
        tested = {"slice_test": slice_test(tests)} if tests else {}
        shown = span(found) if found else window
        head = {"model": read_query.config.model, "window": shown, "by": name}
        return {**head, **tested, "slices": found}

    return Parts(queries, side_by_side)


ADVICE = "recommendation"
_OTHER_LABELS = {"from_", "to", "window", "clock", "raters", "weights"}


def with_current_advice(read_query: ReadQuery) -> Parts | None:
    """Return the parts of a read that recommends something about the current state of a model with an alarm; else None."""
    query, config, view = read_query.query, read_query.config, read_query.view
    included = parts_of(getattr(query, "include", None))
    is_other = read_query.comparison is not None or view.model_fields_set & _OTHER_LABELS
    if ADVICE not in included or is_other or config.label_horizon_s is None:
        return None
    rest = ",".join(each for each in included if each != ADVICE) or None
    own = replace(read_query, query=query.model_copy(update={"include": rest}))
    current = resolved_query(query_for(drift), config)
    queries = {"own": own, "drift": ReadQuery(current, config, WindowQuery(slice=view.slice))}
    return Parts(queries, lambda found: {**found["own"], ADVICE: found["drift"][ADVICE]})


def span(found: dict[str, Any]) -> dict[str, str]:
    """Return the window that contains those of some results."""
    covered = [each["window"] for each in found.values()]
    starts, ends = ([each[name] for each in covered] for name in ("from", "to"))
    return {"from": min(starts), "to": max(ends)}


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
