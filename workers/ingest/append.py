"""Appending a batch to its partition's stream, with its record and with room for the records that may result.

One script (`store/scripts/append_group.lua`) recognises repeats, conflicts and a full backlog, and writes entry, batch record
and counters, for all batches of a partition that come together. Records that may result count as retained until the commit
that consumes the entry: the bounds hold however much is sent at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calibrant_server.workers.ingest.append_groups import Append, AppendGroups, GroupKey
from calibrant_server.workers.ingest.drain_rates import DrainRates
from calibrant_server.workers.ingest.entries import RESTORE, IngestBatch, SourceOffsets
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    BatchConflictError,
    IdsFullError,
    ModelMismatchError,
    OffsetMismatchError,
    RecordsFullError,
    SourcesFullError,
)
from calibrant_server.workers.ingest.store_totals import Amounts, StoreTotals
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.key_names import SCHEMA, Keys, PartitionKeys, tenant_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import HalfImported
from calibrant_server.workers.store.script import AsyncScript, scripts

# Kinds of replies of the script.
_KNOWN, _OTHER, _FULL, _TENANT_FULL = 0, 2, 3, 4
_TENANT_BACKLOG, _TENANT_IDS, _BACKLOG, _IDS = 5, 6, 7, 8
_BEFORE_WATERMARK, _OVERLAP, _GAP, _SOURCES = 9, 10, 11, 12
# The replies of a batch that has no room.
_NO_ROOM = (_FULL, _TENANT_FULL, _TENANT_BACKLOG, _TENANT_IDS, _BACKLOG, _IDS)
# Why a batch with a new id is a repeat.
OFFSETS_ACCEPTED = "offsets_accepted"
# A partition of a topic each, or a site. Each costs a field of the model's marks for ever.
MAX_SOURCES = 1000
_SOURCES_RETRY_S = 60


class NoRoom(RuntimeError):
    """There is no room for the records that may result from an entry; so many are retained or on their way.

    `share` is that of the tenant whose maximum is reached, or 1 for the maximum of all.
    """

    def __init__(self, used: Amounts, share: float = 1.0):
        super().__init__(f"{used.records} records of {used.record_bytes} bytes are retained")
        self.share = share
        self.used = used


class AcceptedBefore(RuntimeError):
    """The messages or the task of a batch were accepted before, under this or another batch id."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class BatchAppender:
    """Appends batches, for the event loop. Every call is safe to repeat with the same nonce."""

    def __init__(self, client: Any, keys: Keys, settings: EngineSettings):
        self._client = client
        self._keys = keys
        self._settings = settings
        self._rates = DrainRates()
        self._totals = StoreTotals(client, keys, lambda: self._settings)
        text = scripts()["append_group"]
        self._script = AsyncScript(client, text)
        # The same for entries that free memory, which a full store takes too.
        self._script_if_full = AsyncScript(
            client, text.replace("#!lua\n", "#!lua flags=allow-oom\n", 1)
        )
        self._groups = AppendGroups(self._send)

    async def close(self) -> None:
        """End what runs in the background."""
        await self._totals.close()

    async def append(self, batch: IngestBatch, nonce: str) -> tuple[BatchRecord, bool]:
        """Append a batch unless its id is known; return the record, and whether it was there before.

        Raises
        ------
        BatchConflictError, BacklogFullError, IdsFullError, RecordsFullError, ModelMismatchError, HalfImported
        OffsetMismatchError, SourcesFullError
        AcceptedBefore
            All messages of the batch are before the watermark of its source, or its task is accepted.
        """
        if batch.config.importing is not None and batch.kind != RESTORE:
            raise HalfImported(batch.config.model)
        if batch.create and not batch.generation:
            batch = _of_config(batch, batch.config.made_now())
        record = BatchRecord(
            batch_records.ACCEPTED,
            batch.digest.hex(),
            batch.n_accepted,
            len(batch.violations),
            [vars(violation) for violation in batch.violations],
            nonce=nonce,
        )
        found = await self._append_to_model(batch, record) or record
        if not found.is_of(batch.digest):
            raise BatchConflictError(batch.batch_id)
        # A record with our own nonce is ours: the first attempt succeeded and its reply was lost.
        return found, found.nonce != nonce

    async def _append_to_model(self, batch: IngestBatch, record: BatchRecord) -> BatchRecord | None:
        """Append a batch; of several requests that make the same model one does, and the others take it."""
        try:
            return await self._append_in_room(batch, record)
        except ModelMismatchError as mismatch:
            current = mismatch.current
            if current is not None and current.importing is not None and batch.kind != RESTORE:
                raise HalfImported(current.model) from mismatch
            mine = batch.config
            if current is None or not batch.create:
                raise
            if current.content != mine.content:
                raise
        made = replace(_of_config(batch, current), create=False)
        return await self._append_to_model(replace(made, checked_revision=current.revision), record)

    async def _append_in_room(self, batch: IngestBatch, record: BatchRecord) -> BatchRecord | None:
        """Append a batch; labels of predictions that are retained need no room, new records do."""
        keys = self._keys.of(batch.config)
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
        ModelMismatchError
            The model is another one, or was deleted.
        BacklogFullError, IdsFullError
        """
        for is_last_try in (False, True):
            group = GroupKey(keys.partition, batch.frees_memory, is_last_try)
            limits = await self._limits(keys, batch, is_last_try)
            append = append_of(keys, batch, record, limits)
            kind, *reply = await self._groups.append(group, append)
            if kind not in _NO_ROOM or self._keys.partitions == 1:
                break
        if kind == _KNOWN:
            return BatchRecord.from_json(reply[0])
        if kind == _OTHER:
            raise ModelMismatchError(ModelConfig.from_json(reply[0]) if reply else None)
        if kind in (_FULL, _TENANT_FULL):
            tenant = "" if kind == _FULL else tenant_of(batch.model)
            share = batch.share if tenant else 1.0
            raise NoRoom(await self._totals.used(tenant), share)
        if kind in _NO_ROOM:
            await self._reject_full(kind, keys, batch, reply)
        self._reject_offsets(kind, batch, reply)
        return None

    async def _limits(
        self, keys: PartitionKeys, batch: IngestBatch, is_last_try: bool = False
    ) -> Amounts:
        """Return what the tenant of a batch may use of its partition."""
        tenant = tenant_of(batch.model)
        return await self._totals.limits(keys.partition, tenant, batch.share, is_last_try)

    async def _reject_full(
        self, kind: int, keys: PartitionKeys, batch: IngestBatch, reply: Sequence[Any]
    ) -> None:
        """Raise: the stream or the records of batch ids have no room, of all or of the tenant."""
        now_s, ttl_s = time.time(), self._settings.idempotency_ttl_s
        everyone = await self._totals.limits(keys.partition)
        if kind == _BACKLOG:
            excess = int(reply[0]) - int(everyone.backlog_bytes * 0.9)
            seconds = self._rates.seconds_to_drain(keys.partition, excess)
            raise BacklogFullError("the backlog is full", seconds)
        if kind == _IDS:
            buckets = dict(zip(reply[0][::2], reply[0][1::2], strict=True))
            room_in_s = batch_records.seconds_to_room(buckets, now_s, ttl_s, everyone.id_bytes)
            raise IdsFullError("the memory for batch ids is full", room_in_s)
        if kind == _TENANT_BACKLOG:
            own = await self._limits(keys, batch)
            excess = int(reply[0]) - int(own.backlog_bytes * 0.9)
            seconds = self._rates.seconds_to_drain(keys.partition, max(excess, 1))
            detail = "the tenant's share of the backlog is full, dead letters and parked batches included"
            raise BacklogFullError(detail, seconds)
        if kind == _TENANT_IDS:
            length_s = batch_records.expiry_bucket_s(ttl_s)
            wait_s = int(length_s - now_s % length_s) + 1
            raise IdsFullError("the tenant's share of the memory for batch ids is full", wait_s)

    def _reject_offsets(self, kind: int, batch: IngestBatch, reply: Sequence[Any]) -> None:
        """Raise if the batch does not begin at the watermark of its source."""
        if kind == _BEFORE_WATERMARK:
            raise AcceptedBefore(OFFSETS_ACCEPTED)
        if kind in (_OVERLAP, _GAP) and isinstance(batch.origin, SourceOffsets):
            raise OffsetMismatchError(batch.origin, int(reply[0]), is_gap=kind == _GAP)
        if kind == _SOURCES:
            raise SourcesFullError(f"the model has {MAX_SOURCES} sources", _SOURCES_RETRY_S)

    async def _send(self, group: GroupKey, appends: list[Append]) -> Sequence[Any]:
        """Run the script of a group; return one reply of each batch."""
        settings = self._settings
        limits = await self._totals.limits(group.partition, is_last_try=group.is_last_try)
        keys = self._keys.partition(group.partition)
        names, arguments = script_input(keys, appends, limits, settings.idempotency_ttl_s)
        script = self._script_if_full if group.frees_memory else self._script
        if settings.durability == "replicated":
            reply = await script.run_replicated(names, arguments, touched=keys.bytes_in)
        else:
            reply = await script(names, arguments)
        bytes_in, bytes_out, *replies = reply
        self._rates.note(group.partition, int(bytes_out), int(bytes_in) - int(bytes_out))
        found: Sequence[Any] = replies
        return found

    def _full(self, batch: IngestBatch, full: NoRoom) -> RecordsFullError:
        settings = self._settings
        n_records = int(settings.retained_records * full.share)
        n_bytes = int(settings.retained_bytes * full.share)
        detail = (
            f"{full.used.records} records of {full.used.record_bytes} bytes are retained by id, or wait, "
            f"with a limit of {n_records} records and {n_bytes} bytes. Records are never dropped before their retention, so "
            f"{batch.n_accepted} new ones do not fit. Labels of stored predictions are still accepted."
        )
        return RecordsFullError(detail, int(settings.housekeeping_s) + 1)

    async def _all_retained(self, keys: PartitionKeys, batch: IngestBatch) -> bool:
        async with self._client.pipeline(transaction=False) as pipe:
            for name in dict.fromkeys(batch.ids):
                pipe.hexists(keys.record_hash(batch.model, batch.generation, name), name)
            return all(await pipe.execute())


def append_of(
    keys: PartitionKeys, batch: IngestBatch, record: BatchRecord, limits: Amounts
) -> Append:
    """Return what the script needs to append a batch, within the limits of its tenant."""
    tenant = tenant_of(batch.model)
    name, text = keys.record(batch.model, batch.generation, batch.batch_id), record.to_json()
    fields = [part for pair in batch.to_fields().items() for part in pair]
    checked = batch.checked_revision
    n_bytes = sum(map(len, fields))  # names are ASCII: `IngestEntry.n_bytes`
    offsets = batch.origin if isinstance(batch.origin, SourceOffsets) else None
    arguments = (
        text,
        len(name) + len(text) + batch_records.RECORD_OVERHEAD_BYTES,
        n_bytes,
        batch.model,
        f'"generation":"{batch.generation}"',
        "" if checked is None else f'"revision":{checked},',
        batch.config.to_json() if batch.create else b"",
        batch.n_records,
        batch.record_bytes,
        tenant,
        *limits,
        *(("", 0, 0) if offsets is None else (offsets.source, offsets.first, offsets.end)),
        MAX_SOURCES,
        len(fields),
        *fields,
    )
    of = (batch.model, batch.generation)
    names = [name, keys.record_bytes_of(tenant), keys.marks(*of)]
    return Append(names, arguments, len(batch.payload))


def script_input(
    keys: PartitionKeys,
    appends: Sequence[Append],
    limits: Amounts,
    ttl_s: int,
) -> tuple[list[str], list[Any]]:
    """Return keys and arguments of the script that appends some batches to a partition."""
    now_s = time.time()
    common = (
        SCHEMA,
        ttl_s,
        batch_records.expiry_bucket(now_s, ttl_s),
        batch_records.first_living_bucket(now_s, ttl_s),
        ttl_s + batch_records.expiry_bucket_s(ttl_s),
        *limits,
        len(appends),
    )
    of_partition = (
        keys.stream,
        keys.bytes_in,
        keys.record_bytes,
        keys.retained,
        keys.models,
        keys.cursor,
    )
    names = [*of_partition, *(key for each in appends for key in each.keys)]
    return names, [*common, *(part for each in appends for part in each.arguments)]


def _of_config(batch: IngestBatch, config: ModelConfig) -> IngestBatch:
    """Return a batch for a configuration."""
    return replace(batch, config=config, generation=config.generation)
