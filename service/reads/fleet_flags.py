"""Detectors that changed among all detectors of all models of a tenant, for `view=status`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypedDict

from cachetools import TTLCache

from calibrant.drift.cohort_tables import OWN_SCORE
from calibrant.inference.false_alarm_rate import flagged
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.alarm.cohorts import parts_of
from calibrant_server.workers.store.model_config import ModelConfig

# The p-values of 10,000 models with 20 slices is 20 MB, and changes when cohorts are sealed.
FLEET_AGE_S = 15.0
MAX_FLEETS = 100


class FlaggedDetector(TypedDict):
    """A detector that is flagged among those of the fleet."""

    scope: str | None
    slice: str | None
    p: float


Flags = Mapping[str, list[FlaggedDetector]]


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
