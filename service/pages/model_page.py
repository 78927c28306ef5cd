"""Data of the page of one model: several reads of the API at the same time, each shown or replaced by its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.documents import Row
from calibrant_server.service.pages.api import Api, ApiResponse, together
from calibrant_server.service.pages.charts import (
    MIN_JOINED,
    band_of,
    evidence_chart,
    evidence_rows,
    filled_rows,
    reliability_chart,
    slices_chart,
    temperature_chart,
)
from calibrant_server.service.pages.numbers import interval
from calibrant_server.service.pages.verdict import (
    before_map,
    restart,
    shown_status,
    verdict,
)

METRICS = "ece,brier,nll,accuracy"
MAX_SLICE_KEYS, MAX_VALUES, MAX_LISTED = 4, 30, 10
WINDOWS = {"all": "All data", "P28D": "Last 28 days", "P7D": "Last 7 days"}


class ModelPageQuery(BaseModel):
    """Which window and slice."""

    model_config = ConfigDict(extra="ignore")

    window: Literal["all", "P28D", "P7D"] = "all"
    slice: str | None = Field(None, max_length=400)


@dataclass(frozen=True)
class SliceTable:
    """Calibration errors of the values of one slice."""

    name: str
    rows: list[Row]
    chart: Any
    n_values: int
    problem: str


async def model_page(api: Api, model: str, query: ModelPageQuery) -> dict[str, Any]:
    """Return the values of the template; a read that fails is replaced by its problem."""
    path = f"/v1/models/{model}"
    window = None if query.window == "all" else query.window
    view = {"window": window, "slice": query.slice}
    settings = await api.get(path)
    if not settings.is_ok:
        return {"settings": settings}
    found = await together(
        metrics=api.get(f"{path}/metrics", metrics=METRICS, **view),
        reliability=api.get(f"{path}/reliability", **view),
        temperature=api.get(f"{path}/temperature", include="curve", **view),
        drift=api.get(f"{path}/drift", slice=query.slice, include="evidence"),
        alarms=api.get("/v1/alarms", model=model, limit=MAX_LISTED),
        maps=api.get(f"{path}/maps", limit=100),
        current=api.get(f"{path}/maps/current"),
        reports=api.get(f"{path}/reports", limit=1000),
    )
    names = list(settings.document["slices"] or {})[:MAX_SLICE_KEYS]
    by_slice = await together(
        **{
            name: api.get(f"{path}/metrics", metrics="ece", by=name, window=window)
            for name in names
        }
    )
    metrics, reliability, current = found["metrics"], found["reliability"], found["current"]
    drift, temperature = found["drift"].document, found["temperature"].document
    error = (metrics.document.get("metrics") or {}).get("ece")
    rows = filled_rows(reliability.document)
    cohorts = evidence_rows(drift)
    return {
        "settings": settings,
        "model": model,
        "query": query,
        "windows": WINDOWS,
        **found,
        "is_observed": str(current.document.get("type", "")).endswith("/observe-only"),
        "verdict": metrics.problem or verdict(metrics.document, reliability.document),
        "error": error,
        "has_intervals": any(
            interval((each or {}).get("interval"))
            for each in (*(metrics.document.get("metrics") or {}).values(), temperature)
        ),
        "is_above_interval": _is_above(error),
        "status": shown_status(drift.get("status"), settings.document["label_horizon"] is not None),
        "before_map": before_map(current.document["version"] if current.is_ok else None, drift),
        "n_few": sum(row["n_effective"] < MIN_JOINED for row in rows),
        "rows": rows,
        "bands": [band_of(row) for row in rows],
        "reliability_chart": reliability_chart(reliability.document, error) if rows else None,
        "cohorts": cohorts,
        "restart": restart(drift, found["maps"].document.get("promotions") or []),
        "evidence_chart": evidence_chart(drift) if cohorts else None,
        "temperature_chart": temperature_chart(temperature) if temperature.get("curve") else None,
        "slices": [_slice_table(name, each) for name, each in by_slice.items()],
        "slice_names": [
            f"{name}:{value}"
            for name, each in by_slice.items()
            for value in list(each.document.get("slices") or {})[:MAX_VALUES]
        ],
    }


async def raters_page(api: Api, model: str, query: ModelPageQuery) -> dict[str, Any]:
    """Return the values of the page of raters and cases, which read every retained record."""
    path = f"/v1/models/{model}"
    view = {"window": None if query.window == "all" else query.window, "slice": query.slice}
    found = await together(
        settings=api.get(path),
        raters=api.get(f"{path}/raters", **view),
        cases=api.get(f"{path}/cases", limit=MAX_LISTED, **view),
    )
    return {"model": model, "query": query, **found}


def _is_above(error: dict[str, Any] | None) -> bool:
    """Whether a calibration error is above its own interval."""
    if error is None or not interval(error.get("interval")):
        return False
    return bool(error["value"] > error["interval"][1])


def _slice_table(name: str, found: ApiResponse) -> SliceTable:
    values = found.document.get("slices") or {}
    rows = [
        {
            "name": f"{name}:{value}",
            "n": each.get("n_labelled"),
            **{
                key: each["metrics"]["ece"].get(key)
                for key in ("value", "interval", "null_mean", "null_q95", "reason")
            },
        }
        for value, each in list(values.items())[:MAX_VALUES]
    ]
    chart = slices_chart(rows) if any(row["value"] is not None for row in rows) else None
    return SliceTable(name, rows, chart, len(values), found.problem)
