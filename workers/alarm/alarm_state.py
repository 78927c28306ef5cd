"""The stored state of alarms: of a model for commits and queries, and of all models for the HTTP service."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calibrant.core.packing import PackingError
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.alarm_settings import ActiveMap, AlarmSettings, promoted_map
from calibrant_server.workers.alarm.cohorts import (
    N_FIRST,
    CohortContents,
    CohortResult,
    PartialCohort,
    SeenUnits,
    detector_name,
    read_units,
    tables_of,
)
from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.alarm.detectors import Detector, Reference
from calibrant_server.workers.alarm.episodes import (
    LAST_NUMBER,
    Episode,
    partition_in,
    read_episodes,
)
from calibrant_server.workers.ingest.record_store import RecordStore, ids_in
from calibrant_server.workers.ingest.reference import reference_panes
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.store.key_names import ACTIVE_MAP, LAST_CHANGE, Keys, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.watermarks import RATED
from calibrant_server.workers.store.windows import Window

if TYPE_CHECKING:
    from calibrant_server.workers.alarm.alarm_commit import AlarmSummary

log = logging.getLogger(__name__)
StoreRetries = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
# Larger cohorts are read from their panes. This many rows take 10 s and half a gigabyte.
MAX_ROWS = 200_000
_A_READ = 20_000


class AlarmState:
    """Detectors by name, read once. Cohort results and episodes are read on request.

    Read after the token: the store rejects the commit if anything changed since then.
    """

    def __init__(self, node: Any, keys: PartitionKeys, config: ModelConfig):
        self._node, self._keys, self.config = node, keys, config
        self.settings = AlarmSettings.of(config)
        self._name = (config.key, config.generation)
        self._number: int | None = None
        self._read: dict[str, list[CohortResult]] = {}

    @cached_property
    def _stored(self) -> dict[bytes, bytes]:
        """The hash of detectors, which also has the last change and the active map."""
        found: dict[bytes, bytes] = self._node.hgetall(self._keys.detectors(*self._name))
        return found

    def read_together(self, name: str) -> None:
        """Read the detectors and the cohort results of one at the same moment."""
        reads = ReadTogether()
        reads.hgetall(self._keys.detectors(*self._name))
        reads.hgetall(self._keys.cohort_results(*self._name, name))
        self._stored, found = reads.run(self._node)
        self._read[name] = _results(found)

    @property
    def version(self) -> bytes:
        """Version of the last change when it was read, empty if there was none."""
        return self._stored.get(LAST_CHANGE.encode(), b"")

    @cached_property
    def detectors(self) -> dict[str, Detector]:
        """Detectors by name, updated as changes are written into a commit.

        An unreadable detector starts again: sealing must not stop because of it.
        """
        detectors = {}
        for name, data in sorted((name.decode(), data) for name, data in self._stored.items()):
            if "|" in name:  # otherwise the field applies to all detectors
                try:
                    detectors[name] = Detector.unpack(data)
                except (PackingError, KeyError, TypeError):
                    log.exception("detector_unreadable detector=%s outcome=restarted", name)
        return detectors

    @cached_property
    def active_map(self) -> ActiveMap:
        """The active calibration map."""
        text = self._stored.get(ACTIVE_MAP.encode())
        version = None if text is None else json.loads(text)["version"]
        return promoted_map(self._node, self._keys, self.config, version)

    @property
    def made_of(self) -> str:
        """Name of what the tables of a cohort depend on: the settings and, of mapped scores, the active map."""
        version = self.active_map.version if self.settings.is_mapped else None
        return f"{self.settings.made_of}|{version}"

    @cached_property
    def is_rated(self) -> bool:
        """Whether named raters rated."""
        return self._node.hget(self._keys.marks(*self._name), RATED) is not None

    def rows(self, contents: CohortContents) -> tuple[IdentifiedRows, bool]:
        """Return the rows of a cohort that have an id, from their retained records, and whether they are all; none of a larger cohort."""
        names = ids_in(self._node, self._keys, self.config, contents.starts) if contents.n <= MAX_ROWS else []  # fmt: skip
        store, found = RecordStore(self._node, self._keys), dict[str, bytes]()
        for first in range(0, len(names), _A_READ):
            found |= store.packed(self.config, names[first : first + _A_READ])
        return IdentifiedRows.read(found), bool(names) and len(names) >= contents.n

    @cached_property
    def partial_cohort(self) -> PartialCohort | None:
        """The cohort that is only partly sealed."""
        data = self._node.hget(self._keys.partial_cohorts, "|".join(self._name))
        return None if data is None else PartialCohort.unpack(data)

    @cached_property
    def seen_units(self) -> SeenUnits:
        """The named units of earlier cohorts."""
        return read_units(self._node, self._keys, self.config)

    @cached_property
    def reference(self) -> Reference:
        """The tables of the model's reference by detector, the window that it was frozen from, and when it was made."""
        found = reference_panes(self._node, self._keys, self.config)
        if found is None:
            return Reference()
        panes, about = found
        of_each = [tables_of(self.settings, {ALL_ROWS: pane}, self.active_map) for pane in panes]
        tables = {name: [each[name] for each in of_each if name in each] for name in of_each[0]}
        return Reference(tables, Window(*about["window"]), about["created_ms"])

    def note(self, name: str, cohort_result: CohortResult) -> None:
        """Add a cohort result that is written into the current commit."""
        others = [each for each in self.cohort_results(name) if each.cohort != cohort_result.cohort]
        self._read[name] = [*others, cohort_result]

    def cohort_results(self, name: str) -> list[CohortResult]:
        """Return the stored cohort results of a detector, oldest first."""
        if name not in self._read:
            self._read[name] = _results(
                self._node.hgetall(self._keys.cohort_results(*self._name, name))
            )
        return self._read[name]

    def episode(self, alarm_id: str) -> Episode | None:
        """Return an episode, or None."""
        text = self._node.hget(self._keys.episodes, alarm_id)
        return None if text is None else Episode.from_json(text)

    def next_number(self) -> int:
        """Return the number of the next change of an episode."""
        if self._number is None:
            self._number = int(self._node.hget(self._keys.episodes, LAST_NUMBER) or 0)
        self._number += 1
        return self._number


def _results(found: dict[bytes, bytes]) -> list[CohortResult]:
    """Read cohort results from a detector's hash, oldest first."""
    return [CohortResult.unpack(int(start), found[start]) for start in sorted(found, key=int)]


class AlarmReader:
    """Reads for the event loop; `store_retries` repeats a read after transient errors."""

    def __init__(self, client: Any, keys: Keys, store_retries: StoreRetries):
        self._client, self._keys, self._retried = client, keys, store_retries
        self._numbers: asyncio.Task[list[int]] | None = None
        self._numbers_at = 0.0

    async def episodes(self, tenant: str) -> list[Episode]:
        """Return all episodes of a tenant, newest first."""
        found = await self._of_each(lambda pipe, keys: pipe.hgetall(keys.episodes))
        mine = [each for hash_ in found for each in read_episodes(hash_) if each.tenant == tenant]
        return sorted(mine, key=lambda each: (-each.raised_s, each.id))

    async def episode(self, tenant: str, alarm_id: str) -> Episode | None:
        """Return one episode, or None. It is in the partition that its id names."""
        number = partition_in(alarm_id)
        if number is None or number >= self._keys.partitions:
            return None
        name = self._keys.partition(number).episodes
        text = await self._retried(lambda: self._client.hget(name, alarm_id))
        episode = None if text is None else Episode.from_json(text)
        return episode if episode is not None and episode.tenant == tenant else None

    async def numbers(self) -> list[int]:
        """Return the number of the last change of an episode, per partition."""
        found = await self._of_each(lambda pipe, keys: pipe.hget(keys.episodes, LAST_NUMBER))
        return [int(number or 0) for number in found]

    async def recent_numbers(self, age_s: float) -> list[int]:
        """Return `numbers` as of at most `age_s` ago; all callers of that time share one read, however many they are."""
        now = time.monotonic()
        if self._numbers is None or now - self._numbers_at >= age_s:
            self._numbers, self._numbers_at = asyncio.create_task(self.numbers()), now
            # Retrieved here, because all who wait may leave.
            self._numbers.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._numbers)

    async def changed_since(self, tenant: str, numbers: list[int]) -> list[tuple[int, Episode]]:
        """Return partition and episode of each change after these numbers, in the order of the changes."""
        found = await self._of_each(lambda pipe, keys: pipe.hgetall(keys.episodes))
        changed = [
            (partition, each)
            for partition, hash_ in enumerate(found)
            for each in read_episodes(hash_)
            if each.tenant == tenant and each.number > numbers[partition]
        ]
        return sorted(changed, key=lambda pair: (pair[1].changed_s, pair[0], pair[1].number))

    async def summaries(self) -> dict[str, AlarmSummary]:
        """Return the gauges by `tenant/model`."""
        found = await self._of_each(lambda pipe, keys: pipe.hgetall(keys.summaries))
        return {name.decode(): json.loads(text) for hash_ in found for name, text in hash_.items()}

    async def reference(self, model: ModelConfig, slice_: str) -> Window | None:
        """The first 28 cohorts since the map or the last change of a slice; None if there are none yet."""
        settings, keys = AlarmSettings.of(model), self._keys.of(model)
        name = detector_name(settings.scopes[0], slice_)
        hash_ = keys.detectors(model.key, model.generation)
        packed = await self._retried(lambda: self._client.hget(hash_, name))
        detector = None if packed is None else Detector.unpack(packed)
        if detector is None or detector.begun is None or detector.last is None:
            return None
        end = detector.last + settings.bucket_s
        return Window(detector.begun, min(end, detector.begun + N_FIRST * settings.bucket_s))

    async def deliveries(self, model: ModelConfig) -> list[WebhookDelivery]:
        """Return the deliveries of a model, newest first."""
        keys = self._keys.of(model)

        async def once() -> list[Any]:
            reads = ReadTogether()
            reads.hvals(keys.deliveries)
            reads.hvals(keys.delivery_log(model.key, model.generation))
            return await reads.run_async(self._client)

        waiting, done = await self._retried(once)
        found = [WebhookDelivery.from_json(text) for text in (*waiting, *done)]
        mine = [each for each in found if each.of == (model.key, model.generation)]
        return sorted(mine, key=lambda each: (-each.made_s, each.id))

    async def _of_each(self, read: Callable[[Any, Any], Any]) -> list[Any]:
        """Run the same read on each partition."""

        async def once() -> list[Any]:
            async with self._client.pipeline(transaction=False) as pipe:
                for number in range(self._keys.partitions):
                    read(pipe, self._keys.partition(number))
                return list(await pipe.execute())

        found: list[Any] = await self._retried(once)
        return found
