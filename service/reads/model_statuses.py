"""Statuses that this process showed last, for scrapes and pages: each is checked against the index at most once a minute.

New data change a status after that minute. A decision - a promoted map, a change of the alarm or of the settings - changes what
`decided` returns at once, in every process: it compares the decisions in the store.

`workers/store/status_index.py` is the index: shared by all processes in the store, and valid until the model's state changes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.reads.fleet import NOT_READY, current_entries
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.status_index import StatusFields

# A status is checked again when it is older than this.
STATUS_AGE_S = 60.0
MAX_STATUSES = 20_000


@dataclass(frozen=True)
class DatedStatus:
    """Status of one generation of a model, and when it was computed or found unchanged (seconds since the epoch).

    `decisions` is the name of the decisions that it was computed from.
    """

    generation: str
    at_s: float
    fields: StatusFields
    decisions: str


class StatusCache:
    """Statuses by model; the least recently used ones are dropped."""

    def __init__(self, reads: ReadService) -> None:
        self._reads = reads
        self._statuses: LRUCache[str, DatedStatus] = LRUCache(MAX_STATUSES)

    async def refreshed(self, configs: Sequence[ModelConfig]) -> dict[str, DatedStatus]:
        """Return a status of each model; one that is not ready in time keeps its last, with its time, or is missing."""
        now = time.time()
        await self._check([each for each in configs if not self._is_fresh(each, now)], now)
        return self.known(configs)

    async def decided(self, configs: Sequence[ModelConfig]) -> dict[str, DatedStatus]:
        """Return the same; a status from before a decision about the model is checked now and never returned.

        This reads two more fields per model.
        """
        with engine_errors():
            found = await self._reads.inbox.statuses.decisions(configs)
        for config, decisions in zip(configs, found, strict=True):
            known = self._statuses.get(config.key)
            if known is not None and known.decisions != decisions:
                del self._statuses[config.key]
        return await self.refreshed(configs)

    async def _check(self, due: Sequence[ModelConfig], now: float) -> None:
        """Read or compute the statuses of these models, and keep those that are ready."""
        found = await current_entries(self._reads, due, max_computed=len(due))
        for config in due:
            entry = found[config.key]
            if entry.fields["reason"] != NOT_READY:
                self._statuses[config.key] = DatedStatus(
                    config.generation, now, entry.fields, entry.decisions
                )

    async def indexed(self, configs: Sequence[ModelConfig]) -> dict[str, StatusFields]:
        """Return the status of each model that has one, as last computed by any process; none is computed for this."""
        entries = await current_entries(self._reads, configs, max_computed=0)
        found = {key: entry.fields for key, entry in entries.items()}
        return found | {key: each.fields for key, each in self.known(configs).items()}

    def known(self, configs: Sequence[ModelConfig]) -> dict[str, DatedStatus]:
        """Return the cached statuses of these models, whatever their age."""
        found = {each.key: self._statuses.get(each.key) for each in configs}
        return {
            each.key: status
            for each in configs
            if (status := found[each.key]) is not None and status.generation == each.generation
        }

    def _is_fresh(self, config: ModelConfig, now: float) -> bool:
        known = self._statuses.get(config.key)
        return (
            known is not None
            and known.generation == config.generation
            and 0 <= now - known.at_s < STATUS_AGE_S
        )
