"""Data of the page of all models: statuses of one page of them, filtered and sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.statuses import RANKS, UNKNOWN, is_without_data, shown_status
from calibrant_server.service.pages.numbers import seen
from calibrant_server.service.pages.visitors import Visitor
from calibrant_server.service.reads.fleet import DatedStatus, recent_statuses
from calibrant_server.service.reads.model_list import has_tag
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.status_index import UNKNOWN_STATUS, StatusFields

PAGE_SIZE, MAX_SHOWN_TAGS = 25, 200
ORDERS = {
    "status": "Order: open alarm, watch, no recent data, undecided, OK; equal ones by name.",
    "error": "Order: by calibration error, the largest first.",
    "labels": "Order: by labelled share, the smallest first.",
    "seen": "Order: by last data, the oldest first.",
    "name": "Order: by name.",
}
Order = Literal["status", "error", "labels", "seen", "name"]
NEW, NEW_S = "new", 86_400
Status = Literal["", "new", "alarm", "watch", "insufficient_data", "ok"]
Summaries = dict[str, AlarmSummary]


class ModelsPageQuery(BaseModel):
    """Which models, in which order."""

    model_config = ConfigDict(extra="ignore")

    sort: Order = "status"
    status: Status = ""
    page: int = Field(1, ge=1, le=100_000)
    q: str = Field("", max_length=128)
    tag: str = Field("", max_length=320)


@dataclass(frozen=True)
class ModelRow:
    """One model of the table; `status` is None while it is computed, `seen` says when data arrived last."""

    model: str
    status: str | None
    fields: StatusFields
    errors: list[float]
    seen: str
    tags: dict[str, str]
    is_new: bool


@dataclass(frozen=True)
class ModelsPage:
    """The table, and how many models there are."""

    rows: list[ModelRow]
    n_models: int
    n_found: int
    n_alarms: int
    n_pages: int
    order: str
    tags: list[str]


async def models_page(request: Request, visitor: Visitor, query: ModelsPageQuery) -> ModelsPage:
    """Return one page of the visitor's models: four reads of the store, and those of statuses that are computed."""
    state = request.app.state
    reads: ReadService = state.reads
    listed = await state.connection.registry.list(visitor.caller.tenant)
    summaries = await state.connection.inbox.alarms.summaries()
    mine = [each for each in listed if visitor.caller.may_use(each.model)]
    found = [
        each
        for each in mine
        if query.q.lower() in each.model.lower() and has_tag(each, query.tag or None)
    ]
    known = await _known(reads, found, query)
    if query.status:
        found = [each for each in found if _matches(each, query.status, summaries, known)]
    ordered = sorted(found, key=lambda each: _place(each, query, summaries, known))
    first = (query.page - 1) * PAGE_SIZE
    shown = ordered[first : first + PAGE_SIZE]
    current = await recent_statuses(reads, shown)
    # A status that was just computed also counts for the order of this page.
    known |= {key: each.fields for key, each in current.items()}
    shown = sorted(shown, key=lambda each: _place(each, query, summaries, known))
    return ModelsPage(
        rows=_rows(shown, current),
        n_models=len(mine),
        n_found=len(found),
        n_alarms=sum(_has_alarm(summaries.get(each.key)) for each in mine),
        n_pages=max(1, -(-len(found) // PAGE_SIZE)),
        order=ORDERS[query.sort],
        tags=sorted({f"{name}:{text}" for each in mine for name, text in each.tags.items()})[
            :MAX_SHOWN_TAGS
        ],
    )


async def _known(
    reads: ReadService, configs: Sequence[ModelConfig], query: ModelsPageQuery
) -> dict[str, StatusFields]:
    """Return the statuses that the index has, where the page depends on them."""
    if query.sort == "name" and not query.status:
        return {}
    found = await recent_statuses(reads, configs, computes=False)
    return {key: each.fields for key, each in found.items()}


def _place(
    config: ModelConfig,
    query: ModelsPageQuery,
    summaries: Summaries,
    known: dict[str, StatusFields],
) -> tuple[Any, ...]:
    """Return the sort key of a model; a model whose value is not known comes last."""
    fields = known.get(config.key, UNKNOWN_STATUS)
    if query.sort == "error":
        error = (fields["error"] or {}).get("value")
        return (error is None, -(error or 0.0), config.model)
    if query.sort == "labels":
        share = fields["label_coverage"]
        return (share is None, share or 0.0, config.model)
    if query.sort == "seen":
        return (fields["last_seen"] is None, fields["last_seen"] or "", config.model)
    if query.sort == "name":
        return (config.model,)
    rank = RANKS[_status_of(config, summaries, known)]
    return (rank, not is_without_data(fields), config.model)


def _matches(
    config: ModelConfig, status: Status, summaries: Summaries, known: dict[str, StatusFields]
) -> bool:
    if status == NEW:
        return _is_new(known.get(config.key, UNKNOWN_STATUS))
    return _status_of(config, summaries, known) == status


def _is_new(fields: StatusFields) -> bool:
    """Return whether the status turned within a day."""
    turned_at = fields.get("turned_at")
    if turned_at is None:
        return False
    return (datetime.now(UTC) - datetime.fromisoformat(turned_at)).total_seconds() < NEW_S


def _status_of(config: ModelConfig, summaries: Summaries, known: dict[str, StatusFields]) -> str:
    """Return the status: alarms are known of every model at one read, the rest as last computed."""
    if _has_alarm(summaries.get(config.key)):
        return "alarm"
    return known.get(config.key, UNKNOWN_STATUS)["status"] or UNKNOWN


def _has_alarm(summary: AlarmSummary | None) -> bool:
    return summary is not None and bool(summary.get("n_alarms"))


def _rows(configs: Sequence[ModelConfig], statuses: dict[str, DatedStatus]) -> list[ModelRow]:
    rows = []
    for config in configs:
        fields = statuses[config.key].fields if config.key in statuses else UNKNOWN_STATUS
        status = shown_status(fields, config.label_horizon_s is not None)
        when = "–" if status is None else seen(fields["last_seen"], config.pane_s)
        rows.append(
            ModelRow(
                config.model,
                status,
                fields,
                fields.get("errors") or [],
                when,
                config.tags,
                _is_new(fields),
            )
        )
    return rows
