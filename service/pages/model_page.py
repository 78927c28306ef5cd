"""Data of the page of one model: several reads of the API at the same time, each shown or replaced by its reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.documents import Result, Row
from calibrant.core.durations import parse_duration
from calibrant.core.statuses import shown_status
from calibrant.core.time_texts import length_text
from calibrant.figures.base import MIN_JOINED
from calibrant.figures.numbers import above_interval_note, is_above_interval
from calibrant.figures.over_time import have_few_labels, over_time_caption, since_first_datum
from calibrant.figures.reliability import band_of, filled_rows
from calibrant.quality_report.verdicts import assessment
from calibrant.results.drift import EVIDENCE
from calibrant.results.report import MULTILABEL
from calibrant_server.service.pages.api import Api, ApiResponse, together
from calibrant_server.service.pages.exceptions import exception_texts, read_exceptions
from calibrant_server.service.pages.numbers import (
    before_change,
    before_map,
    effect_sentence,
    interval,
    restart,
    verdict,
)
from calibrant_server.workers.store.model_config import LABEL_SLICE

SEGMENTATION = "segmentation"
METRICS, OVER_TIME = "ece,brier,nll,accuracy", "ece,accuracy"
MAX_SLICE_KEYS, MAX_VALUES, MAX_LISTED = 4, 30, 10
WINDOWS = {"all": "All data", "P28D": "Last 28 days", "P7D": "Last 7 days"}
# Of the curve over time, where the window is all data.
LONGEST_CURVE, LONGEST_CURVE_S, DAY_S = "P56D", 56 * 86_400, 86_400


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
    figure: str
    n_values: int
    problem: str

    @property
    def above_note(self) -> str:
        """Why a value can be above its own interval, if one is."""
        return above_interval_note(self.rows)


async def model_page(api: Api, model: str, query: ModelPageQuery) -> dict[str, Any]:
    """Return the values of the template; a read that fails is replaced by its problem."""
    path = f"/v1/models/{model}"
    window = None if query.window == "all" else query.window
    settings = await api.get(path)
    if not settings.is_ok:
        return {"settings": settings}
    is_multilabel = settings.document["task"] == MULTILABEL
    if is_multilabel and query.slice is None:
        query = query.model_copy(
            update={"slice": f"{LABEL_SLICE}:{settings.document['classes'][0]}"}
        )
    view = {"window": window, "slice": query.slice}
    curve = view | {
        "metrics": OVER_TIME,
        "window": window or LONGEST_CURVE,
        "every": f"PT{max(DAY_S, int(parse_duration(settings.document['pane'])))}S",
    }
    found = await together(
        metrics=api.get(f"{path}/metrics", metrics=_metrics(settings.document), **view),
        series=api.get(f"{path}/metrics", **curve),
        reliability=api.get(f"{path}/reliability", **view),
        temperature=api.get(f"{path}/temperature", **view),
        drift=api.get(f"{path}/drift", slice=query.slice, include=EVIDENCE),
        alarms=api.get("/v1/alarms", model=model, limit=MAX_LISTED),
        maps=api.get(f"{path}/maps", limit=100),
        current=api.get(f"{path}/maps/current"),
        effect=api.get(f"{path}/maps/current/effect"),
        reports=api.get(f"{path}/reports", limit=1000),
    )
    labels = [LABEL_SLICE] if is_multilabel else []
    watched = (each["slice"] or "" for each in found["drift"].document.get("slices") or ())
    sent = (each.partition(":")[0] for each in watched if ":" in each)
    names = list(dict.fromkeys([*labels, *(settings.document["slices"] or {}), *sent]))
    names = names[:MAX_SLICE_KEYS]
    by_slice = await together(
        **{
            name: api.get(f"{path}/metrics", metrics="ece", by=name, window=window)
            for name in names
        }
    )
    more = await read_exceptions(api, path, settings.document, found, view)
    figures = {
        "over_time": figure(model, "metrics", **curve),
        "reliability": figure(model, "reliability", **view),
        "temperature": figure(model, "temperature", include="curve", **view),
        "drift": figure(model, "drift", slice=query.slice),
        "map_effect": figure(model, "map_effect"),
    }
    slices = [_slice_table(model, name, each, window) for name, each in by_slice.items()]
    return {
        "settings": settings,
        "model": model,
        "query": query,
        "windows": WINDOWS,
        "figures": figures,
        **found,
        **_texts(settings, found, query),
        **exception_texts(settings.document, found, more, WINDOWS[query.window]),
        "slices": slices,
        "slice_names": [row["name"] for each in slices for row in each.rows],
    }


def _metrics(settings: Result) -> str:
    """Return the metrics of the page; of segmentations also the Dice, the first number that a clinician looks for."""
    return f"{METRICS},dice" if settings["task"] == SEGMENTATION else METRICS


def figure(model: str, read: str, **query: str | None) -> str:
    """Return the address of a figure for a page."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"/models/{quote(model, safe='')}/figures/{read}?{urlencode(given)}"


def _texts(
    settings: ApiResponse, found: dict[str, ApiResponse], query: ModelPageQuery
) -> dict[str, Any]:
    """Return the sentences and tables of the page, from its reads."""
    metrics, reliability, current = found["metrics"], found["reliability"], found["current"]
    drift, temperature = found["drift"].document, found["temperature"].document
    estimates = metrics.document.get("metrics") or {}
    rows = filled_rows(reliability.document)
    return {
        "window_end": min(
            (metrics.document.get("window") or {}).get("to") or "",
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        ),
        "is_observed": str(current.document.get("type", "")).endswith("/observe-only"),
        "verdict": metrics.problem
        or verdict(metrics.document, reliability.document, settings.document.get("classes")),
        "assessment": assessment,
        "has_intervals": any(
            interval((each or {}).get("interval")) for each in (*estimates.values(), temperature)
        ),
        "is_above_interval": is_above_interval(estimates.get("ece")),
        "status": shown_status(drift, settings.document["label_horizon"] is not None),
        "before_map": before_map(current.document["version"] if current.is_ok else None, drift),
        "n_few": sum(row["n_effective"] < MIN_JOINED for row in rows),
        "rows": rows,
        "bands": [band_of(row) for row in rows],
        "curve": _curve(settings.document, found["series"].document, query),
        "effect_sentence": effect_sentence(found["effect"].document) if current.is_ok else "",
        "before_change": before_change(
            drift, temperature, _first_labelled(found["series"].document)
        ),
        "restart": restart(drift, found["maps"].document.get("promotions") or []),
    }


def _first_labelled(series: Result) -> str | None:
    """Return the start of the first part of the curve with a label; None without one."""
    rows = since_first_datum(series.get("series") or [])
    return next((row["window"]["from"] for row in rows if any(each["value"] is not None for each in row["metrics"].values())), None)  # fmt: skip


def _parts(series: Result) -> list[Row]:
    """Return the parts of the curve over time, with whether they have few labels; none if no part has a label."""
    rows = since_first_datum(series.get("series") or [])
    has_some = any(each["value"] is not None for row in rows for each in row["metrics"].values())
    few = have_few_labels(rows)
    return (
        [{**row, "few": is_few} for row, is_few in zip(rows, few, strict=True)] if has_some else []
    )


def _due_from(horizon_s: float, rows: list[Row]) -> str:
    """Return from when on labels are not all due yet; empty if the curve ends before."""
    due = datetime.now(UTC) - timedelta(seconds=horizon_s)
    has_later = bool(rows) and datetime.fromisoformat(rows[-1]["window"]["to"]) > due
    return due.isoformat() if has_later else ""


def _curve(settings: Result, series: Result, query: ModelPageQuery) -> dict[str, Any]:
    """Return what the text of the curve needs: its length, from when on labels are not due, and its events."""
    horizon = settings["label_horizon"]
    rows = _parts(series)
    due = "" if horizon is None else _due_from(float(parse_duration(horizon)), rows)
    first, every_s = (rows[0]["window"]["from"] if rows else ""), series.get("every_s") or DAY_S
    return {
        "rows": rows,
        "caption": over_time_caption(series),
        "every": length_text(int(every_s)).replace("1 ", "one ", 1),
        "due": due,
        "is_shorter": query.window == "all" and len(rows) * every_s >= LONGEST_CURVE_S - every_s,
        "events": [each for each in series.get("events") or [] if each["at"] >= first],
    }


def _slice_table(model: str, name: str, found: ApiResponse, window: str | None) -> SliceTable:
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
    has_some = any(row["value"] is not None for row in rows)
    address = figure(model, "metrics", metrics="ece", by=name, window=window) if has_some else ""
    return SliceTable(name, rows, address, len(values), found.problem)
