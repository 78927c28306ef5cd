"""Appending a batch to its partition's stream, with its record and with room for the records that may result.

One read recognises repeats, conflicts and a full backlog. One script (`store/scripts/append.lua`) then writes entry, batch
record and counters. Records that may result count as retained until the commit that consumes the entry: the bounds hold
however much is sent at once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

from calibrant_server.workers.ingest.entries import RESTORE, IngestBatch
from calibrant_server.workers.ingest.errors import (
    BacklogFull,
    BatchConflict,
    IdsFull,
    ModelMismatch,
    RecordsFull,
)
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.connection import scripts
from calibrant_server.workers.store.keys import SCHEMA, Keys, PartitionKeys, tenant_of
from calibrant_server.workers.store.registry import HalfImported, ModelConfig

_KNOWN, _DONE, _GONE, _FULL, _TENANT_FULL, _TENANT_BACKLOG, _TENANT_IDS = range(7)
_WINDOW_S = 10.0
_STEP_S = 0.1
# Work that pauses for longer than this has stopped: its rate before the pause says nothing about the rate after it.
_STALLED_S = 2.0
_UNKNOWN_WAIT_S = 5
_MAX_WAIT_S = 60


class NoRoom(RuntimeError):
    """There is no room for the records that may result from an entry; so many are retained or on their way.

    `share` is that of the tenant whose maximum is reached, or 1 for the maximum of the partition.
    """

    def __init__(self, n_records: int, n_bytes: int, share: float = 1.0):
        super().__init__(f"{n_records} records of {n_bytes} bytes are retained")
        self.share = share
        self.n_records = n_records
        self.n_bytes = n_bytes


class BatchAppender:
    """Appends batches, for the event loop. Every call is safe to repeat with the same nonce."""

    def __init__(self, client: Any, keys: Keys, settings: EngineSettings):
        self._client = client
        self._keys = keys
        self._settings = settings
        self._rates = DrainRates()
        text = scripts()["append"]
        self._script = client.register_script(text)
        # The same for entries that free memory, which a full store takes too.
        self._script_if_full = client.register_script(
            text.replace("#!lua\n", "#!lua flags=allow-oom\n", 1)
        )

    async def append(self, batch: IngestBatch, nonce: str) -> tuple[BatchRecord, bool]:
        """Append a batch unless its id is known; return the record, and whether it was there before.

        Raises
        ------
        BatchConflict, BacklogFull, IdsFull, RecordsFull, ModelMismatch, HalfImported
        """
        found = await self._look(batch)
        if isinstance(found, ModelConfig):
            batch = replace(batch, config=found, generation=found.generation, create=False)
            record = BatchRecord(
                batch_records.ACCEPTED,
                batch.digest.hex(),
                batch.n_accepted,
                len(batch.violations),
                [vars(violation) for violation in batch.violations],
                nonce=nonce,
            )
            found = await self._append_in_room(batch, record) or record
        if found.digest != batch.digest.hex():
            raise BatchConflict(batch.batch_id)
        # A record with our own nonce is ours: the first attempt succeeded and its reply was lost.
        return found, found.nonce != nonce

    async def _look(self, batch: IngestBatch) -> BatchRecord | ModelConfig:
        """Read once: return the batch's record if its id is known, else the model, with room for the batch."""
        keys = self._keys.of_model(batch.model)
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.models, batch.model)
            pipe.get(keys.record(batch.model, batch.generation, batch.batch_id))
            pipe.get(keys.bytes_in)
            pipe.hget(keys.cursor, "out")
            pipe.hgetall(keys.record_bytes)
            config, record, bytes_in, bytes_out, buckets = await pipe.execute()
        current = None if config is None else ModelConfig.from_json(config)
        if current is None and not batch.create:
            raise ModelMismatch(None)
        if current is not None and current.importing is not None and batch.kind != RESTORE:
            raise HalfImported(current.model)
        if current is not None and current.generation != batch.generation:
            if not batch.create:
                raise ModelMismatch(current)
            # Another request has made the model meanwhile: look again under its generation.
            return await self._look_again(batch, current)
        if record is not None:
            return BatchRecord.from_json(record)
        self._check_room(keys, int(bytes_in or 0), int(bytes_out or 0), buckets)
        return current if current is not None else await self._made(batch)

    async def _made(self, batch: IngestBatch) -> BatchRecord | ModelConfig:
        """Make the model; of several requests that do so at the same time one makes it."""
        new = batch.config if batch.config.generation else batch.config.made_now()
        keys = self._keys.of_model(new.key)
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.hsetnx(keys.models, new.key, new.to_json())
            pipe.hget(keys.models, new.key)
            made, text = await pipe.execute()
        if made:
            return new
        if text is None:
            raise ModelMismatch(None)
        return await self._look_again(batch, ModelConfig.from_json(text))

    async def _look_again(
        self, batch: IngestBatch, current: ModelConfig
    ) -> BatchRecord | ModelConfig:
        mine = batch.config
        if (current.task, current.n_classes) != (mine.task, mine.n_classes):
            raise ModelMismatch(current)
        return await self._look(
            replace(batch, config=current, generation=current.generation, create=False)
        )

    def _check_room(
        self, keys: PartitionKeys, bytes_in: int, bytes_out: int, buckets: dict[bytes, bytes]
    ) -> None:
        limit = self._settings.backlog_bytes
        backlog = bytes_in - bytes_out
        self._rates.note(keys.partition, bytes_out, backlog)
        if backlog >= limit:
            seconds = self._rates.seconds_to_drain(keys.partition, backlog - int(limit * 0.9))
            raise BacklogFull("too much waits to be merged", seconds)
        ttl_s, now = self._settings.idempotency_ttl_s, time.time()
        limit_bytes = self._settings.idempotency_bytes
        if batch_records.living_bytes(buckets, now, ttl_s) >= limit_bytes:
            room_in_s = batch_records.seconds_to_room(buckets, now, ttl_s, limit_bytes)
            raise IdsFull("no room to remember another batch id", room_in_s)

    async def _append_in_room(self, batch: IngestBatch, record: BatchRecord) -> BatchRecord | None:
        """Append a batch; labels of predictions that are retained need no room, new records do."""
        keys = self._keys.of_model(batch.model)
        try:
            return await self._append_once(keys, batch, record)
        except NoRoom as full:
            if batch.ids and await self._all_retained(keys, batch):
                return await self._append_once(keys, replace(batch, n_records=0), record)
            raise self._full(batch, full) from full

    async def _append_once(
        self, keys: PartitionKeys, batch: IngestBatch, record: BatchRecord
    ) -> BatchRecord | None:
        """Write entry, record and counters in one step; return the record that was there before.

        Raises
        ------
        NoRoom
            `batch.n_records` further records would exceed the bounds on retained records.
        ModelMismatch
            The model was deleted meanwhile.
        """
        settings = self._settings
        name, text = keys.record(batch.model, batch.generation, batch.batch_id), record.to_json()
        ttl_s = settings.idempotency_ttl_s
        weight = len(name) + len(text) + batch_records.RECORD_OVERHEAD_BYTES
        of_the_record = (text, ttl_s, batch_records.expiry_bucket(time.time(), ttl_s), weight)
        of_the_entry = (
            batch.n_bytes,
            batch.model,
            f'"generation":"{batch.generation}"',
            batch.n_records,
            batch.record_bytes,
        )
        limits = (settings.retained_records, settings.retained_bytes)
        tenant, now_s = tenant_of(batch.model), time.time()
        of_the_tenant = (
            tenant,
            *(int(limit * batch.share) for limit in limits),
            int(settings.backlog_bytes * batch.share),
            int(settings.idempotency_bytes * batch.share),
            batch_records.first_living_bucket(now_s, ttl_s),
            ttl_s + batch_records.expiry_bucket_s(ttl_s),
        )
        fields = [part for pair in batch.to_fields().items() for part in pair]
        script = self._script_if_full if batch.frees_memory else self._script
        kind, *reply = await script(
            keys=[
                *(name, keys.stream, keys.bytes_in, keys.record_bytes, keys.retained, keys.models),
                *(keys.cursor, keys.record_bytes_of(tenant)),
            ],
            args=[*of_the_record, *of_the_entry, *limits, SCHEMA, *of_the_tenant, *fields],
        )
        if kind == _GONE:
            raise ModelMismatch(None)
        if kind == _FULL:
            raise NoRoom(int(reply[0]), int(reply[1]))
        if kind == _TENANT_FULL:
            raise NoRoom(int(reply[0]), int(reply[1]), batch.share)
        if kind == _TENANT_BACKLOG:
            excess = int(reply[0]) - int(settings.backlog_bytes * batch.share * 0.9)
            seconds = self._rates.seconds_to_drain(keys.partition, max(excess, 1))
            raise BacklogFull("too much of the tenant waits to be merged", seconds)
        if kind == _TENANT_IDS:
            length_s = batch_records.expiry_bucket_s(ttl_s)
            wait_s = int(length_s - now_s % length_s) + 1
            raise IdsFull("no room to remember another batch id of the tenant", wait_s)
        return BatchRecord.from_json(reply[0]) if kind == _KNOWN else None

    def _full(self, batch: IngestBatch, full: NoRoom) -> RecordsFull:
        settings = self._settings
        n_records = int(settings.retained_records * full.share)
        n_bytes = int(settings.retained_bytes * full.share)
        detail = (
            f"{full.n_records} records of {full.n_bytes} bytes are retained by id where this model is kept, or on their way, of "
            f"{n_records} records and {n_bytes} bytes at most, and none is dropped before its "
            f"retention: {batch.n_accepted} new ones find no room. Labels of predictions that are there are still taken."
        )
        return RecordsFull(detail, int(settings.housekeeping_s) + 1)

    async def _all_retained(self, keys: PartitionKeys, batch: IngestBatch) -> bool:
        async with self._client.pipeline(transaction=False) as pipe:
            for name in dict.fromkeys(batch.ids):
                pipe.hexists(keys.facts_of(batch.model, batch.generation, name), name)
            return all(await pipe.execute())


class _Sample(NamedTuple):
    at_s: float
    bytes_out: int
    backlog: int


class DrainRates:
    """Bytes consumed per partition over the last seconds, as requests see them; for `Retry-After`."""

    def __init__(self) -> None:
        self._samples: dict[int, deque[_Sample]] = {}

    def note(self, partition: int, bytes_out: int, backlog: int, now: float | None = None) -> None:
        """Note the number of bytes ever consumed, and of those that wait."""
        now = time.monotonic() if now is None else now
        samples = self._samples.setdefault(partition, deque())
        if not samples or now - samples[-1].at_s >= _STEP_S or bytes_out < samples[-1].bytes_out:
            samples.append(_Sample(now, bytes_out, backlog))
        while len(samples) > 2 and now - samples[0].at_s > _WINDOW_S:
            samples.popleft()

    def seconds_to_drain(self, partition: int, n_bytes: int) -> int:
        """Return the whole seconds until so many bytes are consumed at the present rate, 1 to 60."""
        busy = self._busy(list(self._samples.get(partition, ())))
        consumed = busy[-1].bytes_out - busy[0].bytes_out if busy else 0
        if consumed <= 0:
            return _UNKNOWN_WAIT_S
        rate = consumed / (busy[-1].at_s - busy[0].at_s)
        return min(_MAX_WAIT_S, max(1, math.ceil(n_bytes / rate)))

    @staticmethod
    def _busy(samples: list[_Sample]) -> list[_Sample]:
        """Return the last samples between which work went on all the time: it neither stopped nor lacked entries."""
        first, since = len(samples) - 1, None
        for at in range(len(samples) - 1, 0, -1):
            earlier, later = samples[at - 1], samples[at]
            consumed = later.bytes_out - earlier.bytes_out
            since = later.at_s if since is None else since
            lacked_entries = consumed > earlier.backlog
            if consumed < 0 or lacked_entries or since - earlier.at_s > _STALLED_S:
                break
            if consumed > 0:
                first, since = at - 1, earlier.at_s
        return samples[max(first, 0) :]
