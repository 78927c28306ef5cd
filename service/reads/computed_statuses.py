"""Computation of model statuses: two results per model, which the workers cache.

States and cached results of all models are read together; workers are asked for the others only. Results that are not ready in
time are null; the workers finish and cache them, so that a later request finds them.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.errors import InvalidQuery
from calibrant_server.service.reads.queries import WindowQuery, resolved_query
from calibrant_server.service.reads.service import ReadQuery, ReadService, resolved
from calibrant_server.workers.queries.ask import (
    ResultFailedError,
    ResultTimeoutError,
    SubjectGone,
    UnknownQueryError,
    WindowDamaged,
)
from calibrant_server.workers.queries.kinds.drift import DriftQuery
from calibrant_server.workers.queries.kinds.model_status import ModelStatusQuery
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.queries.stored_results import StatedQuery
from calibrant_server.workers.queries.versions import SliceState
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.frozen_maps import PromotedMap
from calibrant_server.workers.store.keys import LAST_CHANGE
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.status_index import StatusFields
from calibrant_server.workers.store.windows import rfc3339

STATUS_WINDOW = "P7D"
# A page waits this long for all of its results together.
STATUS_DEADLINE_S = 5.0
# Queries of one page that wait at the same time; the queue of workers is shared with all other reads.
MAX_WAITING = 16
EVIDENCE_COHORTS = 60
NOT_READY, NOT_COMPUTED = "not_ready", "not_computed"
REQUESTED: tuple[tuple[Query, WindowQuery], ...] = (
    (DriftQuery(), WindowQuery()),
    (ModelStatusQuery(), WindowQuery(window=STATUS_WINDOW)),
)


class _Found(NamedTuple):
    """A result, or nothing and why."""

    result: Result
    reason: str | None = None


class _Part(NamedTuple):
    """One result of a status: the query of its model; None if the model does not support it."""

    config: ModelConfig
    query: StatedQuery | None


async def statuses_with_evidence(
    reads: ReadService, configs: Sequence[ModelConfig]
) -> list[StatusFields]:
    """Return what `view=status` adds to each model, within the deadline.

    `evidence` is the change statistic of the last cohorts, relative to the threshold (logarithms).
    """
    until = asyncio.get_running_loop().time() + STATUS_DEADLINE_S
    with engine_errors():
        states = await reads.inbox.results.states(configs)
        maps = await reads.inbox.maps.current_maps(configs)
        parts = [_part(state, *requested) for state in states for requested in REQUESTED]
        results = await _results(reads, parts, until)
    by_model = zip(*[iter(results)] * len(REQUESTED), strict=True)
    return [
        _status(state, current, found)
        for state, current, found in zip(states, maps, by_model, strict=True)
    ]


def _part(state: SliceState, query: Query, view: WindowQuery) -> _Part:
    try:
        read_query = ReadQuery(resolved_query(query, state.config), state.config, view)
    except InvalidQuery:
        return _Part(state.config, None)
    window = resolved(read_query, state.marks)
    needed = state if query.needs.alarm else state.without_alarm()
    return _Part(state.config, StatedQuery(read_query.query, window, needed.name(window)))


async def _results(reads: ReadService, parts: Sequence[_Part], until: float) -> list[_Found]:
    """Return each result."""
    turns = asyncio.Semaphore(MAX_WAITING)
    asked = [each.query for each in parts if each.query is not None]
    cached = iter(await reads.inbox.results.cached(asked))
    stored = [None if each.query is None else next(cached) for each in parts]

    async def result(part: _Part, body: bytes | None) -> _Found:
        if part.query is None:
            return _Found({}, NOT_COMPUTED)
        if body is not None:
            return _Found(orjson.loads(body))
        return await _computed(reads, part.config, part.query, turns, until)

    return await asyncio.gather(*(result(*each) for each in zip(parts, stored, strict=True)))


async def _computed(
    reads: ReadService,
    config: ModelConfig,
    stated: StatedQuery,
    turns: asyncio.Semaphore,
    until: float,
) -> _Found:
    """Return a result that a worker computes."""
    if asyncio.get_running_loop().time() >= until:
        return _Found({}, NOT_READY)
    try:
        async with asyncio.timeout_at(until), turns:
            found = await reads.inbox.ask(
                stated.query, config, stated.window, version=stated.version, is_new=True
            )
    except (TimeoutError, ResultTimeoutError, FilesUnavailable):
        return _Found({}, NOT_READY)
    except (
        CalibrationInputError,
        ResultFailedError,
        SubjectGone,
        UnknownQueryError,
        WindowDamaged,
    ):
        return _Found({}, NOT_COMPUTED)
    return _Found(orjson.loads(found.body))


def _status(
    state: SliceState,
    current: PromotedMap | None,
    results: Sequence[_Found],
) -> StatusFields:
    """Return the status of one model; a part that is missing is null, with the reason of the first."""
    drift, week = (each.result for each in results)
    is_current = current is not None and current.generation == state.config.generation
    return {
        "status": drift.get("status"),
        "error": week.get("error"),
        "temperature": week.get("temperature"),
        "map_version": orjson.loads(current.body)["version"] if current and is_current else None,
        "label_coverage": week.get("label_coverage"),
        "last_seen": _last_seen(state),
        "reason": next((each.reason for each in results if each.reason is not None), None),
        "evidence": [
            row["sr_log10"] / row["threshold_log10"]
            for row in drift.get("recent", [])[-EVIDENCE_COHORTS:]
            if row["sr_log10"] is not None
        ],
    }


def _last_seen(state: SliceState) -> str | None:
    """Return the start of the newest pane."""
    starts = [int(start) for start in state.panes if start != LAST_CHANGE.encode()]
    return rfc3339(datetime.fromtimestamp(max(starts), UTC)) if starts else None
