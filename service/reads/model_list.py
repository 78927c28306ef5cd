"""The list of models, and the status of each: an overview that does not wait for slow results.

A status reads one cached query per field and model. Results that are not ready in time are null; the workers finish and
cache them, so that a later request finds them.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.errors import InvalidQuery
from calibrant_server.service.http.lists import ListPage, PageQuery
from calibrant_server.service.ingest.event_settings import CloudEventSettings
from calibrant_server.service.reads.estimates import Estimate
from calibrant_server.service.reads.queries import WindowQuery, resolved_query
from calibrant_server.service.reads.service import ReadQuery, ReadService
from calibrant_server.workers.queries.ask import (
    ResultFailedError,
    ResultTimeoutError,
    SubjectGone,
    UnknownQueryError,
)
from calibrant_server.workers.queries.kinds.drift import DriftQuery
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.temperature import TemperatureQuery
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.keys import LAST_CHANGE
from calibrant_server.workers.store.registry import SERVE, Mode, ModelConfig
from calibrant_server.workers.store.windows import rfc3339

STATUS_WINDOW = "P7D"
# A page waits this long for all of its results together.
STATUS_DEADLINE_S = 5.0
# Queries of one page that wait at the same time; the queue of workers is shared with all other reads.
MAX_WAITING = 16
EVIDENCE, EVIDENCE_COHORTS = "evidence", 60
NOT_READY, NOT_COMPUTED = "not_ready", "not_computed"


class ModelListQuery(PageQuery):
    """The requested page, and what it has of each model."""

    view: Literal["settings", "status"] = Field(
        "settings", description="status: adds the status of each model over the last 7 days."
    )
    false_flags: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Maximum expected share of false flags in `flagged` (with view=status).",
    )


class ModelResponse(BaseModel):
    """A model with its settings."""

    model: str
    task: str
    classes: list[str] | None
    n_classes: int
    grid: int
    pane: str
    retention: str | None
    label_horizon: str | None
    slices: dict[str, list[str] | None]
    unit: str | None
    listed_classes: list[int] | None
    composites: dict[str, list[int]] | None = None
    alarm: dict[str, Any] = Field(
        description="Alarm settings; secrets are hidden. Keys without the scope `admin` receive scheme and host of receivers' URLs only."
    )
    cloudevents: CloudEventSettings | None = None
    mode: Mode = SERVE
    revision: int
    created_at: str | None
    records: dict[str, int] | None = Field(
        None,
        description="Counts of records retained by id: pending, waiting, joined, expired, conflicts and others.",
    )
    expected_delay: dict[str, Any] | None = Field(
        None,
        description="After a change of settings: number of cohorts until a slope of 0.75, or an intercept of 0.4, raises an alarm; "
        "for each class of the bets, at most four.",
    )


class FlaggedDetector(BaseModel):
    """A detector that is flagged in the complete fleet."""

    scope: str | None = Field(description="Class of the detector; null: the score.")
    slice: str | None = Field(description="Slice of the detector; null: all rows.")
    evidence_log10: float = Field(description="Evidence since its baseline.")


class ListedModel(ModelResponse):
    """A model of a list; further fields with `view=status`."""

    status: str | None = Field(
        None, description="Of drift: insufficient_data, ok, watch or alarm; over all data."
    )
    error: Estimate | None = Field(
        None, description="Expected calibration error of the last 7 days, with its null reference."
    )
    temperature: float | None = Field(
        None, description="Temperature that fits the labels of the last 7 days."
    )
    map_version: int | None = Field(
        None, description="Version of the current map; null if none was promoted."
    )
    label_coverage: float | None = Field(
        None, description="Share of the predictions of the last 7 days that have a label."
    )
    last_seen: str | None = Field(
        None, description="Start of the newest pane that has data; null if none has."
    )
    as_of: str | None = Field(
        None,
        description="When the status was computed. A page computes at most 50 statuses that are missing or older than the data.",
    )
    flagged: list[FlaggedDetector] | None = Field(
        None,
        description="Detectors with enough evidence of drift, among all detectors of all models of the tenant (e-BH), most evidence first.",
    )
    reason: str | None = Field(
        None,
        description="Why a result is missing: `not_ready` within 5 s (repeat the request), or `not_computed`.",
    )


class ModelsResponse(ListPage):
    """Models, sorted by id."""

    models: list[ListedModel]


async def statuses_with_evidence(
    reads: ReadService, configs: Sequence[ModelConfig]
) -> list[dict[str, Any]]:
    """Return what `view=status` adds to each model, within the deadline.

    `evidence` is the change statistic of the last cohorts, relative to the threshold (logarithms).
    """
    until = asyncio.get_running_loop().time() + STATUS_DEADLINE_S
    turns = asyncio.Semaphore(MAX_WAITING)
    with engine_errors():
        return await asyncio.gather(*(_status(reads, each, turns, until) for each in configs))


async def _status(
    reads: ReadService, config: ModelConfig, turns: asyncio.Semaphore, until: float
) -> dict[str, Any]:
    """Return the status of one model; a part that is missing is null, with the reason of the first."""
    week, always = WindowQuery(window=STATUS_WINDOW), WindowQuery()
    requested: list[tuple[Query, WindowQuery]] = [
        (DriftQuery(), always),
        (MetricsQuery(metrics="ece"), week),
        (TemperatureQuery(), week),
    ]
    results = await asyncio.gather(
        *(_result(reads, config, query, view, turns, until) for query, view in requested)
    )
    (drift, metrics, temperature), reasons = zip(*results, strict=True)
    current = await reads.inbox.maps.current(config.key)
    is_current = current is not None and current.generation == config.generation
    return {
        "status": drift.get("status"),
        "error": metrics.get("metrics", {}).get("ece"),
        "temperature": temperature.get("temperature"),
        "map_version": orjson.loads(current.body)["version"] if current and is_current else None,
        "label_coverage": metrics.get("label_coverage", {}).get("coverage"),
        "last_seen": await _last_seen(reads, config),
        "reason": next((each for each in reasons if each is not None), None),
        EVIDENCE: [
            row["sr_log10"] / row["threshold_log10"]
            for row in drift.get("recent", [])[-EVIDENCE_COHORTS:]
            if row["sr_log10"] is not None
        ],
    }


async def _result(
    reads: ReadService,
    config: ModelConfig,
    query: Query,
    view: WindowQuery,
    turns: asyncio.Semaphore,
    until: float,
) -> tuple[dict[str, Any], str | None]:
    """Return a result, or nothing and why."""
    if asyncio.get_running_loop().time() >= until:
        return {}, NOT_READY
    try:
        async with asyncio.timeout_at(until), turns:
            found = await reads.result(ReadQuery(resolved_query(query, config), config, view))
    except (TimeoutError, ResultTimeoutError):
        return {}, NOT_READY
    except (ResultFailedError, InvalidQuery, SubjectGone, UnknownQueryError):
        return {}, NOT_COMPUTED
    return orjson.loads(found.body), None


async def _last_seen(reads: ReadService, config: ModelConfig) -> str | None:
    """Return the start of the newest pane."""
    state = await reads.inbox.state(config, "")
    starts = [int(start) for start in state.panes if start != LAST_CHANGE.encode()]
    return rfc3339(datetime.fromtimestamp(max(starts), UTC)) if starts else None
