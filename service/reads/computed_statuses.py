"""Computation of model statuses: two results per model, which the workers cache.

States and cached results of all models are read together; workers are asked for the others only. Results that are not ready in
time are null; the workers finish and cache them, so that a later request finds them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import NamedTuple

import orjson
from cachetools import LRUCache

from calibrant.core.documents import Result
from calibrant.results.base import short_estimate
from calibrant.results.drift import RECENT, drift
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.errors import InvalidQuery
from calibrant_server.service.reads.queries import WindowQuery, resolved_query
from calibrant_server.service.reads.service import ReadQuery, ReadService, resolved
from calibrant_server.workers.queries.ask import CHANGING, OK, UNAVAILABLE, Reply
from calibrant_server.workers.queries.declared import query_for
from calibrant_server.workers.queries.kinds.model_status import ModelStatusQuery
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.queries.stored_results import StatedQuery
from calibrant_server.workers.queries.versions import SliceState
from calibrant_server.workers.store.frozen_maps import PromotedMap
from calibrant_server.workers.store.keys import LAST_CHANGE
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.status_index import StatusFields
from calibrant_server.workers.store.windows import rfc3339

STATUS_WINDOW = "P7D"
# A page waits this long for all of its results together.
STATUS_DEADLINE_S = 5.0
N_COHORTS = 60
NOT_READY, NOT_COMPUTED = "not_ready", "not_computed"
REQUESTED: tuple[tuple[Query, WindowQuery], ...] = (
    (query_for(drift, include=RECENT), WindowQuery()),
    (ModelStatusQuery(), WindowQuery(window=STATUS_WINDOW)),
)
# Fields that name a model or its version: no query depends on them, so alike models share what was resolved.
_NAMES = frozenset(
    {
        "tenant", "model", "generation", "revision", "created_at", "importing", "imported", "tags", "events",
    }
)  # fmt: skip
_SHARED = tuple(each.name for each in fields(ModelConfig) if each.name not in _NAMES)
MAX_RESOLVED = 1000


class _Found(NamedTuple):
    """A result, or nothing and why."""

    result: Result
    reason: str | None = None


class _ResolvedQueries:
    """The requested queries, resolved for models; None for one that the model does not support."""

    def __init__(self) -> None:
        self._found: LRUCache[bytes, list[Query | None]] = LRUCache(MAX_RESOLVED)

    def of(self, config: ModelConfig) -> list[Query | None]:
        """Return the queries for a model; of many alike models, each is resolved once."""
        alike = orjson.dumps([getattr(config, name) for name in _SHARED])
        found = self._found.get(alike)
        if found is None:
            found = self._found[alike] = [_resolved(query, config) for query, _ in REQUESTED]
        return found


def _resolved(query: Query, config: ModelConfig) -> Query | None:
    try:
        return resolved_query(query, config)
    except InvalidQuery:
        return None


_resolved_queries = _ResolvedQueries()


async def statuses_with_errors(
    reads: ReadService, configs: Sequence[ModelConfig]
) -> list[StatusFields]:
    """Return what `view=status` adds to each model, within the deadline; `errors` are the calibration errors of the last cohorts."""
    until = asyncio.get_running_loop().time() + STATUS_DEADLINE_S
    with engine_errors():
        states = await reads.inbox.results.states(configs)
        maps = await reads.inbox.maps.current_maps(configs)
        queries = [each for state in states for each in _queries(state)]
        results = await _results(reads, queries, until)
    by_model = zip(*[iter(results)] * len(REQUESTED), strict=True)
    return [
        _status(state, current, found)
        for state, current, found in zip(states, maps, by_model, strict=True)
    ]


def _queries(state: SliceState) -> list[StatedQuery | None]:
    """Return the queries about a model, each with the state that it needs; None for one that the model does not support."""
    resolved_for = _resolved_queries.of(state.config)
    return [
        None if query is None else _stated(state, query, view)
        for query, (_, view) in zip(resolved_for, REQUESTED, strict=True)
    ]


def _stated(state: SliceState, query: Query, view: WindowQuery) -> StatedQuery:
    window = resolved(ReadQuery(query, state.config, view), state.marks)
    needed = state if query.needs.alarm else state.without_alarm()
    return StatedQuery(state.config, query, window, needed.name(window))


async def _results(
    reads: ReadService, queries: Sequence[StatedQuery | None], until: float
) -> list[_Found]:
    """Return each result, of the cache or of a worker."""
    results = reads.inbox.results
    asked = [each for each in queries if each is not None]
    cached = await results.cached(asked)
    missing = [each for each, body in zip(asked, cached, strict=True) if body is None]
    left_s = until - asyncio.get_running_loop().time()
    replies = await results.computed(missing, left_s) if left_s > 0 else [None] * len(missing)
    computed = iter(replies)
    found = iter(
        [
            _of_reply(next(computed)) if body is None else _Found(orjson.loads(body))
            for body in cached
        ]
    )
    return [_Found({}, NOT_COMPUTED) if each is None else next(found) for each in queries]


def _of_reply(reply: Reply | None) -> _Found:
    if reply is None or reply.status in (UNAVAILABLE, CHANGING):
        return _Found({}, NOT_READY)
    return _Found(orjson.loads(reply.body)) if reply.status == OK else _Found({}, NOT_COMPUTED)


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
        "calibration": _word(drift.get("calibration")),
        "change": _word(drift.get("change")),
        "scores": _word(drift.get("scores")),
        "error": short_estimate(week.get("error")),
        "temperature": week.get("temperature"),
        "map_version": orjson.loads(current.body)["version"] if current and is_current else None,
        "label_coverage": week.get("label_coverage"),
        "last_seen": _last_seen(state),
        "reason": next((each.reason for each in results if each.reason is not None), None),
        "errors": [
            row["ece"] for row in drift.get("recent", [])[-N_COHORTS:] if row["ece"] is not None
        ],
        "turned_at": None,
    }


def _word(found: Result | None) -> Result | None:
    """Return a word with its sentence and its number."""
    names = ("word", "sentence", "value", "start")
    return None if found is None else {name: found[name] for name in names if name in found}


def _last_seen(state: SliceState) -> str | None:
    """Return the start of the newest pane."""
    starts = [int(start) for start in state.panes if start != LAST_CHANGE.encode()]
    return rfc3339(datetime.fromtimestamp(max(starts), UTC)) if starts else None
