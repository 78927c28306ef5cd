"""Write the dashboards in deploy/grafana: one for operators and two for owners of models, with and without Prometheus.

`make dashboards` runs it. Each panel is one line below: title, unit and expressions. The tests compare the committed
files with this script and every series with those that the service exposes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "grafana"
COLUMNS, WIDTH, HEIGHT = 2, 12, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
INFINITY = "yesoreyeram-infinity-datasource"
SERVICE = {"type": INFINITY, "uid": "${source}"}
OF_MODEL = '{tenant=~"$tenant",model=~"$model"}'


@dataclass(frozen=True)
class Panel:
    """One time series panel.

    Attributes
    ----------
    unit : Grafana's name of the unit
    queries : legend to PromQL expression
    """

    title: str
    unit: str
    queries: dict[str, str]
    description: str = ""

    def to_json(self, number: int) -> dict[str, Any]:
        """Return Grafana's form of the panel at its place in the grid."""
        row, column = divmod(number, COLUMNS)
        place = {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": row * HEIGHT}
        return {
            "id": number + 1,
            "type": "timeseries",
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": place,
            "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []},
            "targets": [
                {"refId": chr(65 + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
                for i, (legend, expr) in enumerate(self.queries.items())
            ],
        }


def _quantiles(name: str) -> dict[str, str]:
    return {
        f"p{share * 100:g}": f"histogram_quantile({share}, sum by (le) (rate({name}_bucket[5m])))"
        for share in (0.5, 0.95, 0.99)
    }


OPERATIONS = (
    Panel(
        "Accepted rows",
        "reqps",
        {"{{kind}}": "sum by (kind) (rate(calibrant_accepted_rows_total[5m]))"},
    ),
    Panel(
        "Responses by status",
        "reqps",
        {"{{status}}": "sum by (status) (rate(calibrant_requests_total[5m]))"},
    ),
    Panel("Time to accept a batch", "s", _quantiles("calibrant_ingest_seconds")),
    Panel("Time to return a result", "s", _quantiles("calibrant_query_seconds")),
    Panel("Backlog", "bytes", {"bytes": "max(calibrant_backlog_bytes)"}),
    Panel("Merge lag", "s", {"oldest batch": "max(calibrant_merge_lag_seconds)"}),
    Panel(
        "Waits for an operator",
        "none",
        {
            "dead letters": "max(calibrant_dead_letters)",
            "parked batches": "max(calibrant_parked_entries)",
            "unsealed models": "max(calibrant_unsealed_models)",
            "stalled partitions": "max(calibrant_stalled_partitions)",
        },
        "Each of these is 0 in normal operation.",
    ),
    Panel(
        "Workers",
        "none",
        {
            "workers": "max(calibrant_workers)",
            "partitions without a worker": "max(calibrant_partitions_without_lease)",
        },
    ),
)
MODELS = (
    Panel(
        "Calibration error and its null reference, last 7 days",
        "none",
        {
            "{{model}}": f"calibrant_model_calibration_error{OF_MODEL}",
            "{{model}} calibrated, 95 %": f"calibrant_model_calibration_error_null_q95{OF_MODEL}",
            "{{model}} calibrated, mean": f"calibrant_model_calibration_error_null_mean{OF_MODEL}",
        },
        "A value below the 95 % line can be due to chance.",
    ),
    Panel("Temperature", "none", {"{{model}}": f"calibrant_model_temperature{OF_MODEL}"}),
    Panel("Detectors in alarm", "none", {"{{model}}": f"calibrant_drift_alarms{OF_MODEL}"}),
    Panel(
        "Population stability index of the scores",
        "none",
        {"{{model}}": f"calibrant_model_score_shift{OF_MODEL}"},
    ),
    Panel(
        "Label coverage, last 7 days",
        "percentunit",
        {"{{model}}": f"calibrant_model_label_coverage{OF_MODEL}"},
    ),
    Panel(
        "Age of the last evaluated cohort, beyond the label horizon",
        "s",
        {
            "{{model}}": f"time() - calibrant_model_last_sealed_cohort_end_timestamp_seconds{OF_MODEL}"
            f" - calibrant_model_label_horizon_seconds{OF_MODEL}"
        },
    ),
    Panel("Map version", "none", {"{{model}}": f"calibrant_model_map_version{OF_MODEL}"}),
    Panel(
        "Predictions retained by id",
        "none",
        {"{{model}} {{state}}": f"calibrant_records{OF_MODEL}"},
    ),
)


@dataclass(frozen=True)
class ServicePanel:
    """One time series panel that reads the service itself, through the data source Infinity.

    Attributes
    ----------
    metrics : slugs of the request
    columns : legend to selector in an element of `series`
    """

    title: str
    unit: str
    metrics: str
    columns: dict[str, str]
    description: str = ""

    def to_json(self, number: int) -> dict[str, Any]:
        """Return Grafana's form of the panel at its place in the grid."""
        query = f"metrics={self.metrics}&every=P1D&window=P${{days}}D"
        columns = [{"selector": "window.from", "text": "time", "type": "timestamp"}]
        columns += [
            {"selector": selector, "text": legend, "type": "number"}
            for legend, selector in self.columns.items()
        ]
        target = {
            "refId": "A",
            "datasource": SERVICE,
            "type": "json",
            # Evaluated by Grafana's server, so that alerts can use it.
            "parser": "backend",
            "source": "url",
            "format": "timeseries",
            "url": f"/v1/models/${{model}}/metrics?{query}",
            "url_options": {"method": "GET", "data": ""},
            "root_selector": "series",
            "columns": columns,
            "filters": [],
        }
        found = Panel(self.title, self.unit, {}, self.description).to_json(number)
        return found | {"datasource": SERVICE, "targets": [target]}


def _estimate(slug: str) -> dict[str, str]:
    parts = {"": "value", " calibrated, mean": "null_mean", " calibrated, 95 %": "null_q95"}
    bounds = {" lower": "interval[0]", " upper": "interval[1]"}
    return {f"{slug}{text}": f"metrics.{slug}.{each}" for text, each in (parts | bounds).items()}


SERVICE_PANELS = (
    ServicePanel(
        "Expected calibration error per day, with interval and null reference",
        "none",
        "ece",
        _estimate("ece"),
        "A value below the 95 % line can be due to chance.",
    ),
    ServicePanel("Brier score per day", "none", "brier", {"brier": "metrics.brier.value"}),
    ServicePanel("Negative log-likelihood per day", "none", "nll", {"nll": "metrics.nll.value"}),
    ServicePanel(
        "Labels per day",
        "none",
        "ece",
        {"labelled predictions": "metrics.ece.n", "ratings": "metrics.ece.n_ratings"},
    ),
)


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by name of file."""
    return {
        "operations.json": _dashboard(
            "calibrant-operations", "Calibrant: operations", OPERATIONS, ()
        ),
        "models.json": _dashboard(
            "calibrant-models", "Calibrant: models", MODELS, ("tenant", "model")
        ),
        "calibration.json": _service_dashboard(),
    }


def _service_dashboard() -> dict[str, Any]:
    found = _dashboard("calibrant-calibration", "Calibrant: one model", (), ())
    source = {"name": "source", "label": "Source", "type": "datasource", "query": INFINITY}
    texts = (("model", "Model", "triage"), ("days", "Days", "30"))
    boxes = [
        {
            "name": name,
            "label": label,
            "type": "textbox",
            "query": text,
            "current": {"text": text, "value": text},
        }
        for name, label, text in texts
    ]
    panels = [panel.to_json(number) for number, panel in enumerate(SERVICE_PANELS)]
    days = {"from": "now-30d", "to": "now"}
    return found | {"time": days, "templating": {"list": [source, *boxes]}, "panels": panels}


def _dashboard(
    uid: str, title: str, panels: tuple[Panel, ...], variables: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["calibrant"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-7d" if variables else "now-6h", "to": "now"},
        "templating": {"list": [*_source(), *map(_variable, variables)]},
        "panels": [panel.to_json(number) for number, panel in enumerate(panels)],
    }


def _source() -> Iterator[dict[str, Any]]:
    yield {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variable(name: str) -> dict[str, Any]:
    labels = f"calibrant_model_status_timestamp_seconds, {name}"
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values({labels})",
        "definition": f"label_values({labels})",
        "multi": True,
        "includeAll": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def written(dashboard: dict[str, Any]) -> str:
    """Return the text of a file."""
    return json.dumps(dashboard, indent=1) + "\n"


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, dashboard in dashboards().items():
        (FOLDER / name).write_text(written(dashboard), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
