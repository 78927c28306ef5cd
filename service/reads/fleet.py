"""Statuses of many models, from the index in the store: computed where they are missing or outdated.

A list reads one entry of the index per model. It computes statuses that are missing or outdated, at most `MAX_COMPUTED`, the oldest
first; the others are returned as indexed, with the time in `as_of`. A status is made of two results per model, which the workers cache.
Results that are not ready in time are null; the workers finish and cache them, so that a later request finds them.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.routing import ALL_ROWS
from calibrant.results.base import short_estimate
from calibrant.results.drift import RECENT, drift
from calibrant_server.service.http.problems import InvalidQuery
from calibrant_server.service.reads.queries import WindowQuery, resolved_query
from calibrant_server.service.reads.read_query import ReadQuery, resolved
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.queries.ask import (
    ResultFailedError,
    ResultTimeoutError,
    SubjectGone,
    UnknownQueryError,
    WindowDamaged,
)
from calibrant_server.workers.queries.kinds.model_status import ModelStatusQuery
from calibrant_server.workers.queries.query import Needs, Query, query_for
from calibrant_server.workers.queries.versions import SliceState
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.frozen_maps import PromotedMap
from calibrant_server.workers.store.key_names import LAST_CHANGE
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.status_index import (
    UNKNOWN_STATUS,
    IndexedStatus,
    StatusFields,
    decisions_in,
)
from calibrant_server.workers.store.windows import rfc3339

STATUS_WINDOW = "P7D"
# A page waits this long for all of its results together.
STATUS_DEADLINE_S = 5.0
N_COHORTS = 60
NOT_READY, NOT_COMPUTED, ALARM = "not_ready", "not_computed", "alarm"
REQUESTED: tuple[tuple[Query, WindowQuery], ...] = (
    (query_for(drift, include=RECENT), WindowQuery()),
    (ModelStatusQuery(), WindowQuery(window=STATUS_WINDOW)),
)
# What the results of a model depend on.
_STATE = Needs(alarm=True)
_NO_RESULT = (
    InvalidQuery,
    CalibrationInputError,
    ResultFailedError,
    SubjectGone,
    UnknownQueryError,
    WindowDamaged,
)


class _Found(NamedTuple):
    """A result, or nothing and why."""

    result: Result
    reason: str | None = None


# Models whose results are requested at a time: their requests share the connections of the process with others.
_TOGETHER = 100


async def statuses_with_errors(
    reads: ReadService, configs: Sequence[ModelConfig]
) -> list[StatusFields]:
    """Return what `view=status` adds to each model, within the deadline; `errors` are the calibration errors of the last cohorts."""
    until = asyncio.get_running_loop().time() + STATUS_DEADLINE_S
    found: list[StatusFields] = []
    maps = await reads.inbox.maps.current_maps(configs)
    for first in range(0, len(configs), _TOGETHER):
        part = zip(configs[first : first + _TOGETHER], maps[first:], strict=False)
        found += await asyncio.gather(*(_status_of(reads, *each, until) for each in part))
    return found


async def _status_of(
    reads: ReadService, config: ModelConfig, current: PromotedMap | None, until: float
) -> StatusFields:
    state = await reads.inbox.state(config, ALL_ROWS, _STATE)
    results = await asyncio.gather(*(_result(reads, state, *each, until) for each in REQUESTED))
    raised_at = await _raised_at(reads, config, results[0].result.get("alarm"))
    return {**_status(state, current, results), "turned_at": raised_at}


async def _raised_at(reads: ReadService, config: ModelConfig, alarm_id: str | None) -> str | None:
    """Return when the open alarm of a model was raised, None without one."""
    alarms = reads.inbox.alarms
    found = None if alarm_id is None else await alarms.episode(config.tenant, alarm_id)
    return None if found is None else rfc3339(datetime.fromtimestamp(found.raised_s, UTC))


async def _result(
    reads: ReadService, state: SliceState, requested: Query, view: WindowQuery, until: float
) -> _Found:
    """Return a result about a model, of the cache or of a worker."""
    config, left_s = state.config, until - asyncio.get_running_loop().time()
    if left_s <= 0:
        return _Found({}, NOT_READY)
    try:
        query = resolved_query(requested, config)
        window = resolved(ReadQuery(query, config, view), state.marks)
        version = (state if query.needs.alarm else state.without_alarm()).name(window)
        found = await reads.inbox.ask(query, config, window, left_s, version=version)
    except (ResultTimeoutError, FilesUnavailable):
        return _Found({}, NOT_READY)
    except _NO_RESULT:
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
    """Return a word with its sentence, its numbers and n; `bounds` if the labels are a selection."""
    if found is None:
        return None
    names = ("word", "sentence", "value", "smallest_change", "start", "n")
    bounds = {} if found.get("bounds") is None else {"bounds": found["bounds"]}
    return {name: found[name] for name in names if name in found} | bounds


def _last_seen(state: SliceState) -> str | None:
    """Return the start of the newest pane."""
    starts = [int(start) for start in state.panes if start != LAST_CHANGE.encode()]
    return rfc3339(datetime.fromtimestamp(max(starts), UTC)) if starts else None


# Statuses that one page may compute: three queries each, about a second of a worker together.
MAX_COMPUTED = 50
# The window of a status ends now, so an entry is outdated after this time even if the model has not changed.
MAX_AGE_S = 3600.0
# A result that could not be computed may have failed for a reason that is over.
MAX_FAILED_AGE_S = 60.0


async def indexed_statuses(
    reads: ReadService, configs: Sequence[ModelConfig]
) -> list[dict[str, Any]]:
    """Return what `view=status` adds to each model: the last computed status until a newer one is ready.

    The alarms of a model whose status is older than its state are those of now.
    """
    now = time.time()
    found = await reads.inbox.statuses.read(configs)
    states = {config.key: state for config, (state, _) in zip(configs, found, strict=True)}
    known = {config.key: entry for config, (_, entry) in zip(configs, found, strict=True) if entry}
    due = [
        (config, state)
        for config, (state, entry) in zip(configs, found, strict=True)
        if entry is None or _is_due(entry, state, now)
    ]
    due.sort(key=lambda each: known[each[0].key].at_s if each[0].key in known else 0.0)
    computed = await _computed(reads, due[:MAX_COMPUTED], known, now)
    known |= {k: each for k, each in computed.items() if k not in known or _is_ready(each)}
    late = [each for each in configs if _is_late(known.get(each.key), states[each.key])]
    in_alarm = await _in_alarm(reads, late)
    return [_shown(known.get(each.key), in_alarm.get(each.key)) for each in configs]


def _is_ready(entry: IndexedStatus) -> bool:
    return entry.fields["reason"] != NOT_READY


def _is_late(entry: IndexedStatus | None, state: str) -> bool:
    """Return whether a status is missing, incomplete, or of an older state than the model's."""
    return entry is None or entry.state != state or entry.fields["reason"] is not None


async def _in_alarm(reads: ReadService, configs: Sequence[ModelConfig]) -> dict[str, bool]:
    """Return whether each model has an open alarm, by `tenant/model`: one read, however many models."""
    summaries = await reads.inbox.alarms.summaries() if configs else {}
    return {each.key: _has_alarm(each, summaries.get(each.key)) for each in configs}


def _has_alarm(config: ModelConfig, summary: AlarmSummary | None) -> bool:
    if summary is None or summary["generation"] != config.generation:
        return False
    return summary["n_alarms"] > 0


# What pages and scrapes show may be so much older than its data.
STATUS_AGE_S = 60.0


class DatedStatus(NamedTuple):
    """A status, and when it was computed or found unchanged (seconds since the epoch)."""

    at_s: float
    fields: StatusFields


async def recent_statuses(
    reads: ReadService, configs: Sequence[ModelConfig], computes: bool = True
) -> dict[str, DatedStatus]:
    """Return statuses by `tenant/model`: at most a minute behind their data, and never from before a decision about the model.

    One that is not ready in time keeps its last, with its time, or is missing.

    Parameters
    ----------
    computes : compute those that are missing or older; else they are as old as the index has them
    """
    now = time.time()
    found = await reads.inbox.statuses.read(configs)
    every = list(zip(configs, found, strict=True))
    states = {config.key: state for config, (state, _) in every}
    former = {config.key: entry for config, (_, entry) in every if entry is not None}
    known = {k: each for k, each in former.items() if each.decisions == decisions_in(states[k])}
    if computes:
        due = [
            (config, state)
            for config, (state, _) in every
            if (entry := known.get(config.key)) is None or _is_due(entry, state, now, STATUS_AGE_S)
        ]
        computed = await _computed(reads, due, former, now)
        known |= {k: each for k, each in computed.items() if each.fields["reason"] != NOT_READY}
    return {
        key: DatedStatus(now if each.state == states[key] else each.at_s, each.fields)
        for key, each in known.items()
    }


def _is_due(entry: IndexedStatus, state: str, now: float, behind_s: float = 0.0) -> bool:
    """Return whether an entry is outdated; new data may be `behind_s` newer."""
    age_s = now - entry.at_s
    return not 0 <= age_s < _max_age_s(entry) or (entry.state != state and age_s >= behind_s)


def _max_age_s(entry: IndexedStatus) -> float:
    return MAX_AGE_S if entry.fields["reason"] is None else MAX_FAILED_AGE_S


def _dated(fields: StatusFields, former: IndexedStatus | None, now: float) -> StatusFields:
    """Return a status with the time when it turned: as long as no other was known before, when its alarm was raised."""
    if former is None or former.fields["status"] is None:
        return fields
    turned_at = former.fields.get("turned_at")
    if fields["status"] not in (None, former.fields["status"]):
        turned_at = rfc3339(datetime.fromtimestamp(now, UTC))
    return {**fields, "turned_at": turned_at}


async def _computed(
    reads: ReadService,
    due: Sequence[tuple[ModelConfig, str]],
    known: Mapping[str, IndexedStatus],
    now: float,
) -> dict[str, IndexedStatus]:
    """Compute statuses and write those that are complete into the index."""
    found = await statuses_with_errors(reads, [config for config, _ in due])
    entries = {
        config.key: (config, IndexedStatus(state, now, _dated(fields, known.get(config.key), now)))
        for (config, state), fields in zip(due, found, strict=True)
    }
    await reads.inbox.statuses.write(
        {key: each for key, each in entries.items() if _is_ready(each[1])}
    )
    return {key: entry for key, (_, entry) in entries.items()}


def _shown(entry: IndexedStatus | None, in_alarm: bool | None) -> dict[str, Any]:
    """Return a status as a row has it.

    in_alarm : whether an alarm is open, of a status that is missing or older than the state; else None
    """
    known = UNKNOWN_STATUS | {"reason": NOT_READY} if entry is None else entry.fields
    as_of = None if entry is None else rfc3339(datetime.fromtimestamp(entry.at_s, UTC))
    found = {name: value for name, value in known.items() if name != "errors"} | {"as_of": as_of}
    if in_alarm:
        return found | {"status": ALARM}
    if in_alarm is False and found["status"] == ALARM:
        return found | {"status": None, "reason": NOT_READY}
    return found
