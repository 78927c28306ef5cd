"""Reads of alarms and deliveries for the HTTP service."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohorts import N_FIRST, detector_name
from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.alarm.detectors import Detector
from calibrant_server.workers.alarm.episodes import (
    LAST_NUMBER,
    Episode,
    partition_in,
    read_episodes,
)
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.windows import Window

StoreRetries = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


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
