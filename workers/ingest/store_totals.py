"""Bounds that are totals of the store, divided over its partitions.

A script sees the counters of its own partition only. So each service process reads what all partitions use, some seconds apart
while batches arrive, and lets each partition use what it uses and an even part of what is free. A model with a high rate is
so not limited to one part of many: its partition gets further parts as it uses them. A partition that has no room left by
these numbers is read again, with all others, before a batch is rejected; the batch may then use whatever is free. What several
processes append in the same seconds may exceed a total by as much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cachetools import LRUCache
from redis.exceptions import RedisError

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.key_names import Keys

# What is used is read again after this time.
_READ_AFTER_S = 5.0
# A part of the store that does not respond does not stop the others: the last numbers are used until the next read.
_READ_TIMEOUT_S = 0.5
# It is also read again before a batch is rejected, unless so short a time ago a total was used up.
_JUST_NOW_S = 0.1
_MAX_TENANTS = 1000


class Amounts(NamedTuple):
    """What is used or bounded: retained records, their bytes, bytes in the stream, bytes of batch records."""

    records: int
    record_bytes: int
    backlog_bytes: int
    id_bytes: int


@dataclass
class _Used:
    """What each partition uses."""

    by_partition: list[Amounts]
    read_at: float

    @cached_property
    def total(self) -> Amounts:
        """What all partitions use."""
        return Amounts(*(sum(each) for each in zip(*self.by_partition, strict=True)))

    def limits(self, totals: Amounts, partition: int, is_last_try: bool) -> Amounts:
        """Return what one partition may use: with an even part of what is free, or with all of that."""
        n_parts = 1 if is_last_try else len(self.by_partition)
        amounts = zip(totals, self.total, self.by_partition[partition], strict=True)
        return Amounts(*(own + (total - used) // n_parts for total, used, own in amounts))


class StoreTotals:
    """The limits of partitions, of all tenants or of one, for the event loop."""

    def __init__(self, client: Any, keys: Keys, settings: Callable[[], EngineSettings]):
        self._client, self._keys, self._settings = client, keys, settings
        self._used: LRUCache[str, _Used] = LRUCache(_MAX_TENANTS)
        self._reading = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[_Used]] = {}

    async def limits(
        self, partition: int, tenant: str = "", share: float = 1.0, is_last_try: bool = False
    ) -> Amounts:
        """Return what a partition may use, of all tenants or of one that has a share of each total.

        Parameters
        ----------
        is_last_try : a batch was rejected by older numbers
        """
        totals = self._totals(share)
        if self._keys.partitions == 1:
            return totals
        now_s = time.monotonic()
        found = self._used.get(tenant)
        is_full = (
            found is not None
            and now_s - found.read_at < _JUST_NOW_S
            and any(used >= total for used, total in zip(found.total, totals, strict=True))
        )
        if is_last_try and not is_full:
            found = await self._read(tenant, now_s)
        elif found is None or now_s - found.read_at > _READ_AFTER_S:
            self._read_soon(tenant)
        return (found or _Used(self._unknown(), now_s)).limits(totals, partition, is_last_try)

    async def close(self) -> None:
        """End what is being read."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def used(self, tenant: str = "") -> Amounts:
        """Return what all partitions use."""
        return (await self._read(tenant, time.monotonic() - _JUST_NOW_S)).total

    def _totals(self, share: float) -> Amounts:
        settings = self._settings()
        bounds = (
            settings.retained_records,
            settings.retained_bytes,
            settings.backlog_bytes,
            settings.idempotency_bytes,
        )
        return Amounts(*(int(bound * share) for bound in bounds))

    def _read_soon(self, tenant: str) -> None:
        """Read in the background: a batch that has room does not wait for it."""
        if tenant not in self._tasks:
            task = asyncio.create_task(self._read(tenant, time.monotonic()))
            self._tasks[tenant] = task
            task.add_done_callback(lambda _: self._tasks.pop(tenant, None))

    async def _read(self, tenant: str, since_s: float) -> _Used:
        """Return what each partition uses, read at this time or later."""
        async with self._reading:
            found = self._used.get(tenant)
            if found is None or found.read_at < since_s:
                # Before the reply: an append that it does not contain is later.
                read_at = time.monotonic()
                try:
                    used = await asyncio.wait_for(self._read_once(tenant), _READ_TIMEOUT_S)
                except (RedisError, OSError, TimeoutError):
                    used = self._unknown() if found is None else found.by_partition
                found = self._used[tenant] = _Used(used, read_at)
            return found

    def _unknown(self) -> list[Amounts]:
        return [Amounts(0, 0, 0, 0)] * self._keys.partitions

    async def _read_once(self, tenant: str) -> list[Amounts]:
        suffix = f":{tenant}" if tenant else ""
        names = ("records", "coming", "bytes", "coming_bytes", "backlog")
        fields = [f"{name}{suffix}" for name in names]
        async with self._client.pipeline(transaction=False) as pipe:
            for number in range(self._keys.partitions):
                keys = self._keys.partition(number)
                pipe.hmget(keys.retained, fields)
                pipe.hgetall(keys.record_bytes_of(tenant) if tenant else keys.record_bytes)
                pipe.get(keys.bytes_in)
                pipe.hget(keys.cursor, "out")
            replies = await pipe.execute()
        now_s, ttl_s = time.time(), self._settings().idempotency_ttl_s
        found = []
        for at in range(0, len(replies), 4):
            numbers, buckets, bytes_in, bytes_out = replies[at : at + 4]
            records, coming, n_bytes, coming_bytes, of_tenant = (int(n or 0) for n in numbers)
            backlog = of_tenant if tenant else int(bytes_in or 0) - int(bytes_out or 0)
            id_bytes = batch_records.living_bytes(buckets, now_s, ttl_s)
            amounts = (records + coming, n_bytes + coming_bytes, backlog, id_bytes)
            found.append(Amounts(*(max(0, each) for each in amounts)))
        return found
