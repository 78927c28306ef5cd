"""Inbox: the engine's interface to the HTTP service, for batches and for queries.

Everything here is asynchronous and may be used by many tasks at once. Only this module retries: the retries of the client
library are off, and the retries here carry the same batch id.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from secrets import token_hex
from typing import Any, TypeVar

from redis.exceptions import RedisError

from calibrant_server.workers.alarm.alarm_state import AlarmReader
from calibrant_server.workers.ingest.append import AcceptedBefore, BatchAppender
from calibrant_server.workers.ingest.dead_letters import DeadLetterReader
from calibrant_server.workers.ingest.entries import IngestBatch
from calibrant_server.workers.ingest.inbox_errors import (
    ModelGoneError,
    StoreFullError,
    StoreRejectedError,
    UnknownBatchError,
    unavailable,
)
from calibrant_server.workers.ingest.orders import alarm_order
from calibrant_server.workers.ingest.record_store import complete_tallies, read_tallies
from calibrant_server.workers.queries.ask import Other, QueryClient, QueryResult
from calibrant_server.workers.queries.query import Needs, Query
from calibrant_server.workers.queries.versions import PANES, SliceState, Versions
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.access_keys import AccessKeys
from calibrant_server.workers.store.audit_log import AuditLog
from calibrant_server.workers.store.batch_records import BatchReceipt, BatchRecord
from calibrant_server.workers.store.connection import connect_async, join
from calibrant_server.workers.store.day_file import day_files
from calibrant_server.workers.store.event_halves import EventHalves
from calibrant_server.workers.store.file_store import FileHealth
from calibrant_server.workers.store.frozen_maps import MapVersions
from calibrant_server.workers.store.key_names import SCHEMA, Keys
from calibrant_server.workers.store.model_config import BaselineRecord, ModelConfig, parsed_config
from calibrant_server.workers.store.page_sessions import PageSessions
from calibrant_server.workers.store.partition_state import Troubles, read_troubles
from calibrant_server.workers.store.rate_limits import RateLeases, WebhookTestLimit
from calibrant_server.workers.store.report_archive import ReportArchive
from calibrant_server.workers.store.script import run_async
from calibrant_server.workers.store.slice_names import is_live
from calibrant_server.workers.store.status_index import StatusIndex
from calibrant_server.workers.store.tenant_usage import TenantUsage
from calibrant_server.workers.store.transient_errors import StoreState, is_worth_repeating
from calibrant_server.workers.store.watermarks import Sources, Watermarks
from calibrant_server.workers.store.windows import Window

T = TypeVar("T")
# Time for the store to accept a batch, retries included. Clients' own timeouts are usually 10 s and more.
INGEST_DEADLINE_S = 5.0
# After this no caller waits for a result any longer. The worker finishes and caches it all the same.
RESULT_DEADLINE_S = 20.0
_FIRST_PAUSE_S = 0.01
_MAX_PAUSE_S = 0.25


class Inbox:
    """Appends batches, reports outcomes and sends queries.

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
        self._state = StoreState()
        self.keys = Keys(settings.namespace, settings.partitions, day_files(settings))
        self.durability: str = settings.durability
        self.maps = MapVersions(self.client, self.keys)
        self.reports = ReportArchive(self.client, self.keys)
        self.sources = Sources(self.client, self.keys, self._retried)
        self.access_keys = AccessKeys(self.client, self.keys, self._retried)
        self.page_sessions = PageSessions(self.client, self.keys, self._retried)
        self.audit = AuditLog(self.client, self.keys, self._retried)
        self.rates = RateLeases(self.client, self.keys)
        self.usage = TenantUsage(self.client, self.keys, self._retried)
        self.webhook_test_limit = WebhookTestLimit(self.client, self.keys, self._retried)
        self.event_halves = EventHalves(self.client, self.keys, self._retried)
        self.statuses = StatusIndex(self.client, self.keys, self._retried)
        self.letters = DeadLetterReader(settings, self._retried)
        self._file_health = FileHealth(self.client, self.keys)
        self._appender = BatchAppender(self.client, self.keys, settings)
        self._versions = Versions(self.client, self.keys)
        self._queries = QueryClient(self.client, self.keys, self._versions)

    async def __aenter__(self) -> Inbox:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Check that the store belongs to these settings, and read the durability that receipts state."""
        self.durability = await self._retried(lambda: join(self.client, self.settings))

    async def close(self) -> None:
        """Cancel waiting queries and close the connections."""
        await self._queries.close()
        await self._appender.close()
        self.letters.close()
        await self.client.aclose()

    async def enqueue(self, batch: IngestBatch) -> BatchReceipt:
        """Append a batch to its stream, unless its id is known.

        Raises
        ------
        BatchConflictError, BacklogFullError, IdsFullError, RecordsFullError, ModelMismatchError, StoreUnavailableError
        """
        nonce = token_hex(4)
        return await self._retried(lambda: self._enqueue_once(batch, nonce), writes=True)

    async def record(self, model_key: str, batch_id: str) -> BatchReceipt | None:
        """Return the receipt of a batch id, or None if there is no record of it."""
        return await self._retried(lambda: self._record_once(model_key, batch_id))

    async def wait_merged(
        self, model_key: str, batch_id: str, seconds: float, was_there: bool = False
    ) -> BatchReceipt:
        """Wait until a batch has an outcome, at most `seconds`; return its receipt.

        Parameters
        ----------
        was_there : the batch was appended or found before, so only the model's deletion can have removed its record

        Raises
        ------
        UnknownBatchError, ModelGoneError, StoreUnavailableError
        """
        deadline = time.monotonic() + seconds
        pause_s = 0.002
        while True:
            receipt = await self.record(model_key, batch_id)
            if receipt is None:
                raise ModelGoneError(model_key) if was_there else UnknownBatchError(batch_id)
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
        version: str | None = None,
    ) -> QueryResult:
        """Have a query computed from the panes of a window.

        Parameters
        ----------
        query : with the state version it is the identity of the result
        against : what the result is compared with
        version : name of the state, of both sides, where the caller has just read it

        Raises
        ------
        CalibrationInputError
            The result kind rejected the query.
        ResultTimeoutError, ResultFailedError, UnknownQueryError, StoreUnavailableError
        """
        deadline = deadline_s or RESULT_DEADLINE_S
        return await self._retried(
            lambda: self._queries.ask(query, model, window, slice_, deadline, against, version),
            deadline,
        )

    async def state_version(
        self, model: ModelConfig, slice_: str, window: Window, needs: Needs = PANES
    ) -> str:
        """Return the name of the state that results about a window depend on; different states have different names."""
        return await self._retried(
            lambda: self._versions.state_version(model, slice_, window, needs)
        )

    async def state(self, model: ModelConfig, slice_: str, needs: Needs = PANES) -> SliceState:
        """Return the current state that results about a slice depend on."""
        return await self._retried(lambda: self._versions.state(model, slice_, needs))

    async def unchanged_state(
        self, model: ModelConfig, slice_: str, needs: Needs = PANES
    ) -> SliceState | None:
        """Return the same in one read if model and slice are unchanged since the last read; else None."""
        return await self._retried(lambda: self._versions.unchanged_state(model, slice_, needs))

    async def order(self, model: ModelConfig, order: Mapping[str, Any]) -> None:
        """Append an order about a model's alarm (`calibrant_server.workers.alarm.alarm_commit`). Orders are safe to repeat.

        Raises
        ------
        StoreUnavailableError
        """
        keys, entry = self.keys.of(model), alarm_order(model.key, model.generation, order)

        fields = [part for pair in entry.to_fields().items() for part in pair]
        names = [keys.stream, keys.bytes_in]
        values = [entry.n_bytes, *fields]
        await self._retried(
            lambda: run_async(self.client, "append_entry", names, values), writes=True
        )

    @cached_property
    def alarms(self) -> AlarmReader:
        """Reader of alarms; one, because all event streams share what it has read."""
        return AlarmReader(self.client, self.keys, self._retried)

    async def baselines(self, model: ModelConfig) -> dict[str, BaselineRecord]:
        """Return the baselines of a model by name."""
        name = self.keys.of(model).baselines(model.key, model.generation)
        found = await self._retried(lambda: self.client.hgetall(name))
        return {field.decode(): json.loads(text) for field, text in sorted(found.items())}

    async def marks(self, model: ModelConfig, slice_: str) -> Watermarks:
        """Return how far the panes of a slice are sealed and merged into days."""
        return await self._retried(lambda: self._versions.marks(model, slice_))

    async def slices(self, model: ModelConfig) -> list[str]:
        """Return the slices of a model that batches fill, `""` (all rows) first."""
        name = self.keys.of(model).slices(model.key, model.generation)
        found = await self._retried(lambda: self.client.smembers(name))
        return sorted(slice_ for slice_ in (member.decode() for member in found) if is_live(slice_))

    async def n_panes(self, model: ModelConfig, slices: Sequence[str]) -> list[int]:
        """Return how many panes each slice of a model has."""
        return await self._retried(lambda: self._versions.n_panes(model, slices))

    async def tallies(self, model: ModelConfig) -> dict[str, int]:
        """Return the number of retained records of a model by state."""
        name = self.keys.of(model).tallies(model.key, model.generation)
        return complete_tallies(await self._retried(lambda: self.client.hgetall(name)))

    async def tallies_of(self, configs: Sequence[ModelConfig]) -> dict[str, dict[str, int]]:
        """Return the number of retained records of these models by `tenant/model`."""
        return await self._retried(lambda: read_tallies(self.client, self.keys, configs), 0.0)

    async def check_writable(self) -> bool:
        """Return whether the store takes batches: False if its memory is full, which ends without action or by deletions.

        Raises
        ------
        StoreUnavailableError
            It cannot be reached, or takes no write at all: a read-only replica, a failing disk, a newer version's layout.
        """
        schema = await self._retried(
            lambda: self.client.hget(self.keys.configuration, "schema"), 0.0
        )
        if schema is not None and int(schema) != SCHEMA:
            raise StoreRejectedError(f"it has layout {int(schema)}, this version writes {SCHEMA}")
        try:
            await self._retried(
                lambda: run_async(self.client, "probe", [self.keys.configuration]), 0.0, writes=True
            )
        except StoreFullError:
            return False
        return True

    async def check_files(self, config: ModelConfig) -> None:
        """Raise FilesUnavailable if a model has days in files that cannot be read now: before a response of many parts begins."""
        name = self.keys.of(config).cold_days(config.key, config.generation)
        if await self._retried(lambda: self.client.exists(name)):
            await self._file_health.require()

    async def troubles(self) -> Troubles:
        """Return what requires an operator."""
        troubles = await self._retried(
            lambda: read_troubles(self.client, self.keys, self.settings.lease_s), 0.0
        )
        is_away = await self._retried(self._file_health.is_unavailable, 0.0)
        return replace(troubles, files_unavailable=is_away)

    async def _retried(
        self,
        once: Callable[[], Awaitable[T]],
        deadline_s: float | None = None,
        writes: bool = False,
    ) -> T:
        """Retry after transient errors until the deadline; every call is safe to repeat.

        Connections to a server that lost its role are dropped by their pool, so each retry may reach another server.
        """
        limit_s = self._ingest_deadline_s if deadline_s is None else deadline_s
        deadline = time.monotonic() + limit_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                result = await once()
            except (RedisError, OSError) as error:
                self._state.failed(error)
                if not is_worth_repeating(error) or time.monotonic() + pause_s > deadline:
                    raise unavailable(error) from error
            else:
                if self._state.problem:
                    self._state.responded(writes)
                return result
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    async def _enqueue_once(self, batch: IngestBatch, nonce: str) -> BatchReceipt:
        try:
            record, was_there = await self._appender.append(batch, nonce)
        except AcceptedBefore as before:
            return BatchReceipt.accepted_before(
                batch.batch_id, batch.n_accepted, self.durability, before.reason
            )
        return BatchReceipt.of(batch.batch_id, record, self.durability, duplicate=was_there)

    async def _record_once(self, model_key: str, batch_id: str) -> BatchReceipt | None:
        keys = self.keys.of_model(model_key)
        found = await self.client.hget(keys.models, model_key)
        if found is None:
            return None
        generation = parsed_config(found).generation
        text = await self.client.get(keys.record(model_key, generation, batch_id))
        if text is None:
            return None
        return BatchReceipt.of(batch_id, BatchRecord.from_json(text), self.durability)
