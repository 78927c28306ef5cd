"""Overview of many models: statuses from the index, and slices that are flagged in the complete fleet.

A page reads one entry of the index per model. It computes statuses that are missing or outdated, at most `MAX_COMPUTED`, the oldest
first; the others are returned as indexed, with the time in `as_of`.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict

from cachetools import TTLCache

from calibrant.drift.cohort_tables import OWN_SCORE
from calibrant.drift.false_alarm_rate import flagged
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.reads.computed_statuses import (
    NOT_READY,
    statuses_with_errors,
)
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.alarm.cohorts import parts_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.status_index import (
    UNKNOWN_STATUS,
    IndexedStatus,
    StatusFields,
)
from calibrant_server.workers.store.windows import rfc3339

# Statuses that one page may compute: three queries each, about a second of a worker together.
MAX_COMPUTED = 50
# The window of a status ends now, so an entry is outdated after this time even if the model has not changed.
MAX_AGE_S = 3600.0
# A result that could not be computed may have failed for a reason that is over.
MAX_FAILED_AGE_S = 60.0
# The p-values of 10,000 models with 20 slices is 20 MB, and changes when cohorts are sealed.
FLEET_AGE_S = 15.0
MAX_FLEETS = 100


class FlaggedDetector(TypedDict):
    """A detector that is flagged among those of the fleet."""

    scope: str | None
    slice: str | None
    p: float


Flags = Mapping[str, list[FlaggedDetector]]


async def indexed_statuses(
    reads: ReadService, configs: Sequence[ModelConfig]
) -> list[dict[str, Any]]:
    """Return what `view=status` adds to each model."""
    found = await current_entries(reads, configs, MAX_COMPUTED)
    return [_shown(found.get(config.key)) for config in configs]


async def current_entries(
    reads: ReadService, configs: Sequence[ModelConfig], max_computed: int
) -> dict[str, IndexedStatus]:
    """Return the entry of each model that has one; at most `max_computed` missing or outdated ones are computed, the oldest first."""
    now = time.time()
    with engine_errors():
        found = await reads.inbox.statuses.read(configs)
    known = {config.key: entry for config, (_, entry) in zip(configs, found, strict=True) if entry}
    due = [
        (config, state)
        for config, (state, entry) in zip(configs, found, strict=True)
        if entry is None or entry.state != state or not 0 <= now - entry.at_s < _max_age_s(entry)
    ]
    due.sort(key=lambda each: known[each[0].key].at_s if each[0].key in known else 0.0)
    return known | await _computed(reads, due[:max_computed], known, now)


def _max_age_s(entry: IndexedStatus) -> float:
    return MAX_AGE_S if entry.fields["reason"] is None else MAX_FAILED_AGE_S


def _dated(fields: StatusFields, former: IndexedStatus | None, now: float) -> StatusFields:
    """Return a status with the time when it turned; none as long as no other was known before."""
    turned_at = None if former is None else former.fields.get("turned_at")
    if (
        former is not None
        and None not in (fields["status"], former.fields["status"])
        and fields["status"] != former.fields["status"]
    ):
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
    with engine_errors():
        await reads.inbox.statuses.write(
            {key: each for key, each in entries.items() if each[1].fields["reason"] != NOT_READY}
        )
    return {key: entry for key, (_, entry) in entries.items()}


def _shown(entry: IndexedStatus | None) -> dict[str, Any]:
    known = UNKNOWN_STATUS | {"reason": NOT_READY} if entry is None else entry.fields
    as_of = None if entry is None else rfc3339(datetime.fromtimestamp(entry.at_s, UTC))
    return {name: value for name, value in known.items() if name != "errors"} | {"as_of": as_of}


class Fleet:
    """Flags of each tenant's complete fleet, computed at most every `FLEET_AGE_S`."""

    def __init__(self, reads: ReadService) -> None:
        self._reads = reads
        self._flags: TTLCache[tuple[str, float], Flags] = TTLCache(MAX_FLEETS, FLEET_AGE_S)

    async def flags(self, tenant: str, configs: Sequence[ModelConfig], false_flags: float) -> Flags:
        """Return the flagged detectors by `tenant/model`, smallest p-value first; models without any may be left out.

        Parameters
        ----------
        configs : all models of the tenant, because the share of false flags is that of the complete fleet
        false_flags : maximum expected share of false flags
        """
        known = self._flags.get((tenant, false_flags))
        if known is None:
            with engine_errors():
                summaries = await self._reads.inbox.alarms.summaries()
            known = await asyncio.to_thread(fleet_flags, summaries, configs, false_flags)
            self._flags[tenant, false_flags] = known
        return known


def fleet_flags(
    summaries: Mapping[str, AlarmSummary], configs: Sequence[ModelConfig], false_flags: float
) -> Flags:
    """Return the detectors that changed, among all detectors of these models."""
    values = {
        f"{config.key}\n{name}": value
        for config in configs
        if (summary := summaries.get(config.key)) is not None
        and summary["generation"] == config.generation
        for name, value in summary.get("p", {}).items()
    }
    found: dict[str, list[FlaggedDetector]] = {}
    for each in flagged(values, false_flags) if values else []:
        key, name = each.split("\n", 1)
        scope, slice_ = parts_of(name)
        found.setdefault(key, []).append(
            {
                "scope": None if scope == OWN_SCORE else scope,
                "slice": slice_ or None,
                "p": values[each],
            }
        )
    return found
