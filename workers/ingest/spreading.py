"""Side partitions of hot models, for the event loop: opening them, and records of batch ids that are in another partition.

`store/side_partitions.py` has the rule by which a batch belongs to one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cachetools import LRUCache

from calibrant_server.workers.ingest.deltas import DeltaName
from calibrant_server.workers.ingest.entries import IngestBatch
from calibrant_server.workers.ingest.errors import ModelMismatchError
from calibrant_server.workers.ingest.forgotten_deltas import forgotten_batch
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.connection import read_replicated
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import Registry, RevisionConflict
from calibrant_server.workers.store.side_partitions import all_sides, open_sides, side_partition

_MAX_OPENED = 10_000


class SidePartitions:
    """The side partitions of a store's models."""

    def __init__(self, client: Any, keys: Keys, durability: str):
        self._client, self._keys = client, keys
        self._durability = durability
        self._registry = Registry(client, keys, durability)
        self._opened: LRUCache[str, tuple[str, int]] = LRUCache(_MAX_OPENED)

    async def open(self, config: ModelConfig) -> None:
        """Open the side partitions of a model for its configuration, in case the process that wrote it has not done so.

        Once this has been done for a configuration, it is remembered.

        Raises
        ------
        ModelMismatchError
            The configuration is not the current one; also if the current one was lost, and is written again here.
        """
        if self._opened.get(config.key) == (config.generation, config.revision):
            return
        stored = await self._client.hget(self._keys.of(config).models, config.key)
        current = None if stored is None else ModelConfig.from_json(stored)
        if current is None or (current.generation, current.revision) != (
            config.generation,
            config.revision,
        ):
            raise ModelMismatchError(current)
        lost = await open_sides(self._client, self._keys, config, self._durability)
        if lost is not None:
            try:
                current = await self._registry.write_lost(config, lost)
            except RevisionConflict as conflict:
                current = conflict.current
            raise ModelMismatchError(current)
        self._opened[config.key] = (config.generation, config.revision)

    def forget(self, config: ModelConfig) -> None:
        """Open the partitions again before the next batch: one of them rejected this configuration."""
        self._opened.pop(config.key, None)

    async def record_elsewhere(self, batch: IngestBatch, here: int) -> BatchRecord | None:
        """Return the record of a batch id in another partition than the one to which the batch is appended.

        Call it after `open`: until then a process that knows an older configuration may add one.
        """
        config, of = batch.config, (batch.config.key, batch.config.generation)
        places = [each for each in self._places(config, batch.batch_id) if each != here]
        found = await self._first_record(config, batch.batch_id, places)
        if found is None:
            return await self._forgotten(config, batch.batch_id, places)
        number, record = found
        if self._durability == "replicated":
            # An earlier attempt may have ended before a replica had it.
            name = self._keys.partition(number).record(*of, batch.batch_id)
            touched = self._keys.partition(number).bytes_in
            text = await read_replicated(self._client, touched, "GET", name)
            return None if text is None else BatchRecord.from_json(text)
        return record

    async def _forgotten(
        self, config: ModelConfig, batch_id: str, places: Sequence[int]
    ) -> BatchRecord | None:
        """Return the record of a batch in a delta whose side partition has lost its last writes, and all that it knew of the batch.

        With `replicated`, a delta goes to the own partition after a replica has what made it.

        Parameters
        ----------
        places : partitions that have no record of the batch
        """
        own = self._keys.number_of(config)
        sides = [each for each in places if each != own]
        if not sides or self._durability == "replicated":
            return None
        name = f"{config.key}|{config.generation}"
        async with self._client.pipeline(transaction=False) as pipe:
            for each in sides:
                pipe.hget(self._keys.partition(each).last_deltas, name)
            last = await pipe.execute()
        known = {each: int(number or 0) for each, number in zip(sides, last, strict=True)}
        return await forgotten_batch(self._client, self._keys, config, batch_id, known)

    async def record(self, config: ModelConfig, batch_id: str) -> BatchRecord | None:
        """Return the record of a batch id with its present outcome, wherever it is."""
        places = self._places(config, batch_id)
        found = await self._first_record(config, batch_id, places)
        record = await self._forgotten(config, batch_id, places) if found is None else found[1]
        return None if record is None else await self.resolved(config, record)

    async def resolved(self, config: ModelConfig, record: BatchRecord) -> BatchRecord:
        """Return a record with the outcome of the delta that contains its batch, if there is one."""
        if not record.delta:
            return record
        keys, of = self._keys.of(config), (config.key, config.generation)
        delta = DeltaName.read(record.delta)
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.get(keys.record(*of, delta.batch_id))
            pipe.hget(keys.marks(*of), delta.merged_field)
            text, merged_to = await pipe.execute()
        if text is not None:
            return _with_outcome(record, BatchRecord.from_json(text))
        is_merged = int(merged_to or 0) >= delta.number
        return record.ended(batch_records.MERGED) if is_merged else record

    def _places(self, config: ModelConfig, batch_id: str) -> list[int]:
        own = self._keys.number_of(config)
        side = side_partition(config, batch_id)
        sides = all_sides(config) if config.have_shards_moved else [] if side is None else [side]
        return list(dict.fromkeys([own, *sides]))

    async def _first_record(
        self, config: ModelConfig, batch_id: str, places: Sequence[int]
    ) -> tuple[int, BatchRecord] | None:
        """Return the record of a batch id, and the partition that has it."""
        if not places:
            return None
        async with self._client.pipeline(transaction=False) as pipe:
            for each in places:
                keys = self._keys.partition(each)
                pipe.get(keys.record(config.key, config.generation, batch_id))
            found = await pipe.execute()
        for number, text in zip(places, found, strict=True):
            if text is not None:
                return number, BatchRecord.from_json(text)
        return None


def _with_outcome(record: BatchRecord, delta: BatchRecord) -> BatchRecord:
    """Return the record of a batch with the outcome of its delta."""
    if delta.status in (batch_records.ACCEPTED, batch_records.MERGED, batch_records.PARKED):
        return record.ended(delta.status)
    none = {"accepted": 0, "rejected": record.accepted + record.rejected}
    return record.ended(delta.status, errors=record.errors + delta.errors, **none)
