"""What the door hands over and asks for. Everything here is asynchronous and may be used by many tasks at once.

A batch goes into its partition's stream with its record in one script (`calibrant_server.workers.ingest.append`), which tells a repeat by the
record. Nothing is repeated behind the caller's back: the client library's retries are off, and the retries here carry the
same batch id.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from secrets import token_hex
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError
from redis.exceptions import TimeoutError as StoreTimeoutError

from calibrant_server.workers.alarm.alarm_reader import AlarmBook
from calibrant_server.workers.ingest.append import Appending, NoRoom
from calibrant_server.workers.ingest.drain_rate import DrainRates
from calibrant_server.workers.ingest.entries import RESTORE, Entry, alarm_order
from calibrant_server.workers.ingest.parked import Troubles, read_troubles
from calibrant_server.workers.ingest.receipts import (
    BacklogFull,
    BatchConflict,
    IdsFull,
    IngestBatch,
    ModelGone,
    ModelMismatch,
    Receipt,
    RecordsFull,
    Saturated,
    StoreFull,
    StoreUnavailable,
    UnknownBatch,
)
from calibrant_server.workers.ingest.retained_store import read_tallies, whole_tallies
from calibrant_server.workers.queries.ask import Other, QueryClient, QueryResult
from calibrant_server.workers.queries.query import Needs, Query
from calibrant_server.workers.queries.versions import PANES, SliceState, Versions
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.connection import connect_async, join
from calibrant_server.workers.store.frozen_maps import MapVersions
from calibrant_server.workers.store.keys import Keys, PartitionKeys
from calibrant_server.workers.store.registry import HalfImported, ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks, is_live
from calibrant_server.workers.store.windows import Window

__all__ = [
    "BacklogFull",
    "BatchConflict",
    "IdsFull",
    "Inbox",
    "IngestBatch",
    "ModelGone",
    "ModelMismatch",
    "Receipt",
    "RecordsFull",
    "Saturated",
    "StoreFull",
    "StoreUnavailable",
    "UnknownBatch",
]  # fmt: skip

T = TypeVar("T")
# For the store to take a batch, repeats included. Clients' own timeouts are usually 10 s and more.
INGEST_DEADLINE_S = 5.0
# After this no caller waits for a result any longer. The worker finishes and caches it all the same.
ANSWER_DEADLINE_S = 20.0
_PASSING = (StoreConnectionError, StoreTimeoutError, ConnectionError, asyncio.TimeoutError)
_FIRST_PAUSE_S = 0.01
_MAX_PAUSE_S = 0.25


class Inbox:
    """Batches in, outcomes and answers out.

    Use as an async context manager, or call `open` and `close`.
    """

    def __init__(
        self,
        settings: EngineSettings,
        client: Any = None,
        ingest_deadline_s: float = INGEST_DEADLINE_S,
    ):
        self.settings = settings
        self._ingest_deadline_s = ingest_deadline_s
        self.client = client or connect_async(settings)
        self.keys = Keys(settings.namespace, settings.partitions)
        self.durability: str = settings.durability
        self.maps = MapVersions(self.client, self.keys)
        self._rates = DrainRates()
        self._appending = Appending(self.client, settings)
        self._versions = Versions(self.client, self.keys)
        self._asking = QueryClient(self.client, self.keys, self._versions)

    async def __aenter__(self) -> Inbox:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Check that the store is the one meant, and learn what it keeps, which is what answers will name."""
        self.durability = await self._kept_up(lambda: join(self.client, self.settings))

    async def close(self) -> None:
        """End what waits and let the connections go."""
        await self._asking.close()
        await self.client.aclose()

    async def hand_over(self, delivery: IngestBatch) -> Receipt:
        """Put a batch into its stream, or tell that it is there already.

        Raises
        ------
        BatchConflict, BacklogFull, IdsFull, ModelMismatch, StoreUnavailable
        """
        nonce = token_hex(4)
        return await self._kept_up(lambda: self._hand_over_once(delivery, nonce))

    async def record(self, model_key: str, batch_id: str) -> Receipt | None:
        """What is known of a batch id of a model, or None."""
        return await self._kept_up(lambda: self._record_once(model_key, batch_id))

    async def wait_merged(
        self, model_key: str, batch_id: str, seconds: float, was_there: bool = False
    ) -> Receipt:
        """Wait until a batch is merged, rejected or set aside, at most so long; then tell what is known.

        Parameters
        ----------
        was_there : the batch was handed over or found before: only the model's deletion can have taken its record away

        Raises
        ------
        UnknownBatch, ModelGone, StoreUnavailable
        """
        deadline = time.monotonic() + seconds
        pause_s = 0.002
        while True:
            receipt = await self.record(model_key, batch_id)
            if receipt is None:
                raise ModelGone(model_key) if was_there else UnknownBatch(batch_id)
            was_there = True
            left_s = deadline - time.monotonic()
            if receipt.is_final or left_s <= 0:
                return receipt
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 0.05)

    async def ask(
        self,
        query: Query,
        model: ModelConfig,
        window: Window,
        deadline_s: float | None = None,
        slice_: str = "",
        against: Other | None = None,
    ) -> QueryResult:
        """Have a query computed from the panes of a window.

        Parameters
        ----------
        query : with the state version it is the identity of the result
        against : what the result is compared with

        Raises
        ------
        CalibrationInputError
            The result kind rejected the query.
        AnswerTimeout, AnswerFailed, UnknownQuestion, StoreUnavailable
        """
        deadline = deadline_s or ANSWER_DEADLINE_S
        return await self._kept_up(
            lambda: self._asking.ask(query, model, window, slice_, deadline, against), deadline
        )

    async def state_version(
        self, model: ModelConfig, slice_: str, window: Window, needs: Needs = PANES
    ) -> str:
        """A name of the state that results about a window depend on; other state has another name."""
        return await self._kept_up(
            lambda: self._versions.state_version(model, slice_, window, needs)
        )

    async def state(self, model: ModelConfig, slice_: str, needs: Needs = PANES) -> SliceState:
        """What results about a slice depend on now."""
        return await self._kept_up(lambda: self._versions.state(model, slice_, needs))

    async def unchanged_state(
        self, model: ModelConfig, slice_: str, needs: Needs = PANES
    ) -> SliceState | None:
        """The same in one read, where model and slice are as they were last seen; else None."""
        return await self._kept_up(lambda: self._versions.unchanged_state(model, slice_, needs))

    async def order(self, model: ModelConfig, order: dict[str, Any]) -> None:
        """Have something done about a model's alarm (`calibrant_server.workers.alarm.commands`); every order may come twice.

        Raises
        ------
        StoreUnavailable
        """
        keys, entry = self.keys.of_model(model.key), alarm_order(model.key, model.generation, order)

        async def once() -> None:
            async with self.client.pipeline(transaction=True) as pipe:
                pipe.xadd(keys.stream, entry.to_fields())
                pipe.incrby(keys.bytes_in, entry.n_bytes)
                await pipe.execute()

        await self._kept_up(once)

    @property
    def alarms(self) -> AlarmBook:
        """What there is to read of alarms."""
        return AlarmBook(self.client, self.keys, self._kept_up)

    async def baselines(self, model: ModelConfig) -> dict[str, dict[str, Any]]:
        """What a model's baselines hold, by name."""
        name = self.keys.of_model(model.key).baselines(model.key, model.generation)
        found = await self._kept_up(lambda: self.client.hgetall(name))
        return {field.decode(): json.loads(text) for field, text in sorted(found.items())}

    async def marks(self, model: ModelConfig, slice_: str) -> Watermarks:
        """How far the panes of a slice are sealed and merged into days."""
        return await self._kept_up(lambda: self._versions.marks(model, slice_))

    async def slices(self, model: ModelConfig) -> list[str]:
        """Slices of a model that batches fill, `""` (all rows) first."""
        name = self.keys.of_model(model.key).slices(model.key, model.generation)
        found = await self._kept_up(lambda: self.client.smembers(name))
        return sorted(slice_ for slice_ in (member.decode() for member in found) if is_live(slice_))

    async def tallies(self, model: ModelConfig) -> dict[str, int]:
        """How many retained records a model has, by what they wait for."""
        name = self.keys.of_model(model.key).tallies(model.key, model.generation)
        return whole_tallies(await self._kept_up(lambda: self.client.hgetall(name)))

    async def all_tallies(self, most: int) -> dict[str, dict[str, int]]:
        """Retained records of models by `tenant/model`, of so many models at most, those first by name."""
        return await self._kept_up(lambda: read_tallies(self.client, self.keys, most), 0.0)

    async def ping(self) -> None:
        """Raises StoreUnavailable unless the store answers now."""
        await self._kept_up(self.client.ping, 0.0)

    async def troubles(self) -> Troubles:
        """What an operator must see to."""
        return await self._kept_up(lambda: read_troubles(self.client, self.keys), 0.0)

    async def _kept_up(
        self, once: Callable[[], Awaitable[T]], deadline_s: float | None = None
    ) -> T:
        """Try again through passing trouble until the deadline; every repeat is safe to repeat."""
        limit_s = self._ingest_deadline_s if deadline_s is None else deadline_s
        deadline = time.monotonic() + limit_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await once()
            except OutOfMemoryError as error:
                raise StoreFull("the store's memory is full", 5) from error
            except _PASSING as error:
                if time.monotonic() + pause_s > deadline:
                    raise StoreUnavailable(f"the store cannot be reached: {error}") from error
            except ResponseError as error:
                raise StoreUnavailable(f"the store refused: {error}", 5) from error
            except RedisError as error:
                raise StoreUnavailable(f"the store failed: {error}") from error
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    async def _hand_over_once(self, delivery: IngestBatch, nonce: str) -> Receipt:
        model = await self._look(delivery, nonce)
        if isinstance(model, Receipt):
            return model
        keys = self.keys.of_model(model.key)
        received_ms = int(delivery.received_at.timestamp() * 1000)
        entry = Entry(
            delivery.batch_id, model.key, model.generation, delivery.kind,
            delivery.digest, received_ms, delivery.payload, partial=delivery.partial,
            places=delivery.places, n_records=delivery.n_accepted if delivery.retains else 0,
        )  # fmt: skip
        record = BatchRecord(
            batch_records.ACCEPTED, delivery.digest.hex(), delivery.n_accepted, delivery.n_rejected,
            delivery.errors, nonce=nonce,
        )  # fmt: skip
        earlier = await self._append(delivery, keys, entry, record)
        return self._receipt_of(delivery, nonce, earlier or record)

    async def _append(
        self, delivery: IngestBatch, keys: PartitionKeys, entry: Entry, record: BatchRecord
    ) -> BatchRecord | None:
        """Hand an entry over; returns the record that was there before. New records may find no room, labels of predictions
        that are there need none."""
        try:
            return await self._appending.append(keys, entry, record)
        except NoRoom as full:
            if delivery.ids and await self._all_retained(keys, delivery):
                return await self._appending.append(keys, replace(entry, n_records=0), record)
            raise self._full(delivery, full) from full

    async def _look(self, delivery: IngestBatch, nonce: str) -> Receipt | ModelConfig:
        """The first read: a receipt if the batch is known, else the model, with room for the batch."""
        model = delivery.model
        keys = self.keys.of_model(model.key)
        async with self.client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.models, model.key)
            pipe.get(keys.record(model.key, model.generation, delivery.batch_id))
            pipe.get(keys.bytes_in)
            pipe.hget(keys.cursor, "out")
            pipe.hgetall(keys.record_bytes)
            config, record, bytes_in, bytes_out, buckets = await pipe.execute()
        current = None if config is None else ModelConfig.from_json(config)
        if current is None and not delivery.create:
            raise ModelMismatch(None)
        if current is not None and current.importing is not None and delivery.kind != RESTORE:
            raise HalfImported(current.model)
        if current is not None and current.generation != model.generation:
            if not delivery.create:
                raise ModelMismatch(current)
            # Another request has made the model meanwhile: look again under its name.
            return await self._look_again(delivery, current, nonce)
        if record is not None:
            return self._receipt_of(delivery, nonce, BatchRecord.from_json(record))
        self._check_room(keys, int(bytes_in or 0), int(bytes_out or 0), buckets)
        return current if current is not None else await self._made(delivery, nonce)

    async def _made(self, delivery: IngestBatch, nonce: str) -> Receipt | ModelConfig:
        """Make the model; of several who do so at the same time one makes it."""
        new = delivery.model if delivery.model.generation else delivery.model.made_now()
        keys = self.keys.of_model(new.key)
        async with self.client.pipeline(transaction=False) as pipe:
            pipe.hsetnx(keys.models, new.key, new.to_json())
            pipe.hget(keys.models, new.key)
            made, text = await pipe.execute()
        if made:
            return new
        if text is None:
            raise ModelMismatch(None)
        return await self._look_again(delivery, ModelConfig.from_json(text), nonce)

    async def _look_again(
        self, delivery: IngestBatch, current: ModelConfig, nonce: str
    ) -> Receipt | ModelConfig:
        mine = delivery.model
        if (current.task, current.n_classes) != (mine.task, mine.n_classes):
            raise ModelMismatch(current)
        changed = IngestBatch(**{**delivery.__dict__, "model": current, "create": False})
        return await self._look(changed, nonce)

    def _check_room(
        self, keys: PartitionKeys, bytes_in: int, bytes_out: int, buckets: dict[bytes, bytes]
    ) -> None:
        limit = self.settings.backlog_bytes
        self._rates.note(keys.partition, bytes_out)
        backlog = bytes_in - bytes_out
        if backlog >= limit:
            seconds = self._rates.seconds_to_drain(keys.partition, backlog - int(limit * 0.9))
            raise BacklogFull("too much waits to be merged", seconds)
        ttl_s, now = self.settings.idempotency_ttl_s, time.time()
        if batch_records.living_bytes(buckets, now, ttl_s) >= self.settings.idempotency_bytes:
            length_s = batch_records.expiry_bucket_s(ttl_s)
            raise IdsFull(
                "no room to remember another batch id", int(length_s - now % length_s) + 1
            )

    def _full(self, delivery: IngestBatch, full: NoRoom) -> RecordsFull:
        settings = self.settings
        detail = (
            f"{full.n_records} records of {full.n_bytes} bytes are retained by id where this model is kept, or on their way, of "
            f"{settings.retained_records} records and {settings.retained_bytes} bytes at most, and none is dropped before its "
            f"retention: {delivery.n_accepted} new ones find no room. Labels of predictions that are there are still taken."
        )
        return RecordsFull(detail, int(settings.housekeeping_s) + 1)

    async def _all_retained(self, keys: PartitionKeys, delivery: IngestBatch) -> bool:
        model = (delivery.model.key, delivery.model.generation)
        async with self.client.pipeline(transaction=False) as pipe:
            for name in dict.fromkeys(delivery.ids):
                pipe.hexists(keys.facts_of(*model, name), name)
            return all(await pipe.execute())

    def _receipt_of(self, delivery: IngestBatch, nonce: str, record: BatchRecord) -> Receipt:
        if record.digest != delivery.digest.hex():
            raise BatchConflict(delivery.batch_id)
        # A record with our own nonce is ours: the first attempt went through and its reply was lost.
        return self._receipt(delivery.batch_id, record, duplicate=record.nonce != nonce)

    def _receipt(self, batch_id: str, record: BatchRecord, duplicate: bool = False) -> Receipt:
        return Receipt(
            batch_id, record.status, duplicate or record.duplicate, record.accepted, record.rejected,
            record.errors, self.durability, record.stale,
            record.duplicate_rows, record.stale_rows, record.conflicts, record.slices_other,
        )  # fmt: skip

    async def _record_once(self, model_key: str, batch_id: str) -> Receipt | None:
        keys = self.keys.of_model(model_key)
        config = await self.client.hget(keys.models, model_key)
        if config is None:
            return None
        generation = ModelConfig.from_json(config).generation
        text = await self.client.get(keys.record(model_key, generation, batch_id))
        return None if text is None else self._receipt(batch_id, BatchRecord.from_json(text))
