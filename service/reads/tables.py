"""Results as tables: one row per metric and part, per bin, per cohort. The columns are the same whatever the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool

from calibrant_server.service.reads.service import Render
from calibrant_server.service.reads.table_formats import Kind, Row, written

Document = Mapping[str, Any]
METRICS: dict[str, Kind] = {
    "model": "text", "slice": "text", "from": "time", "to": "time", "metric": "text", "class": "integer",
    "value": "number", "interval_low": "number", "interval_high": "number", "null_mean": "number", "null_q95": "number",
    "above_null": "flag", "tolerance_verdict": "text", "difference": "number", "difference_low": "number",
    "difference_high": "number", "n": "integer", "n_ratings": "integer", "n_effective": "number", "reason": "text",
}  # fmt: skip
RELIABILITY: dict[str, Kind] = {
    "model": "text", "from": "time", "to": "time", "scope": "text", "raters": "text", "bin": "integer",
    "lower": "number", "upper": "number", "count": "integer", "n_predictions": "integer", "n_effective": "number",
    "weight": "number", "sum_confidence": "number", "sum_correct": "number", "mean_confidence": "number",
    "accuracy": "number", "gap": "number", "interval_low": "number", "interval_high": "number",
    "difference": "number", "difference_low": "number", "difference_high": "number",
}  # fmt: skip
COHORTS: dict[str, Kind] = {
    "from": "time", "to": "time", "evidence_log10": "number", "threshold_log10": "number",
    "over_threshold": "flag", "n_units": "number", "mean_confidence": "number", "accuracy": "number",
    "n_predictions": "integer", "n_labelled": "integer",
}  # fmt: skip


def rendered(
    media_type: str, columns: Mapping[str, Kind], rows: Callable[[Document], Iterator[Document]]
) -> Render:
    """Return the function that makes a table of a JSON result."""

    def table(body: bytes) -> bytes:
        found = rows(orjson.loads(body))
        return written(media_type, columns, (_row(each, columns) for each in found))

    async def render(body: bytes) -> bytes:
        return await run_in_threadpool(table, body)

    return render


def metric_rows(found: Document) -> Iterator[Document]:
    """Yield each metric of each part and slice; after a metric that has them, its values by class."""
    if "slices" in found:
        name = found["by"]
        for value, each in found["slices"].items():
            for row in metric_rows(each):
                yield {**row, "slice": f"{name}:{value}"}
        return
    if "series" in found:
        for part in found["series"]:
            yield from metric_rows({"model": found["model"], **part})
        return
    shared = {"model": found["model"], **found["window"]}
    for metric, estimate in found["metrics"].items():
        row = {**shared, "metric": metric, **_flat(estimate)}
        yield row
        for index, value in enumerate(estimate.get("by_class") or ()):
            if isinstance(value, int | float | None):
                yield {**shared, "metric": metric, "class": index, "value": value}


def reliability_rows(found: Document) -> Iterator[Document]:
    """Yield each bin; empty bins have no means."""
    shared = {"model": found["model"], "scope": found["scope"], "raters": found["raters"]}
    for each in found["table"]:
        yield {**shared, **found["window"], **_flat(each)}


def cohort_rows(found: Document) -> Iterator[Document]:
    """Yield each cohort."""
    for each in found["cohorts"]:
        yield {**each, **each["cohort"]}


def _flat(estimate: Document) -> dict[str, Any]:
    """Return an estimate whose intervals are two columns each."""
    ends = {
        f"{prefix}{end}": value
        for name, prefix in (("interval", "interval_"), ("difference_interval", "difference_"))
        if estimate.get(name)
        for end, value in zip(("low", "high"), estimate[name], strict=True)
    }
    return {**estimate, **ends}


def _row(found: Document, columns: Mapping[str, Kind]) -> Row:
    return [_value(found.get(name), kind) for name, kind in columns.items()]


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "time":
        return datetime.fromisoformat(value)
    return float(value) if kind == "number" else value
