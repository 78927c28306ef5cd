"""Acceptance of posted batches: from a request to a receipt.

The checks run by rising cost: key, remembered rejections, headers, size, bytes, form, meaning, store. The route prepares
what its body holds; all other steps are the same for every kind of batch.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson
from cachetools import LRUCache
from fastapi import Request, Response

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.notes import NO_NOTES, InputNotes
from calibrant_server.service.engine import Connection, engine_settings
from calibrant_server.service.http.bodies import JSON, NDJSON, Body, read_body
from calibrant_server.service.http.parameters import agreed_batch_id, only, preferred_wait
from calibrant_server.service.http.problems import (
    ModelUnknown,
    Problem,
    QuotaFull,
    StoreUnavailable,
)
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.model_rules import Limits
from calibrant_server.service.security.admission import Admission
from calibrant_server.service.security.keys import Caller, Keyring
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.entries import IngestBatch, Places, SourceOffsets
from calibrant_server.workers.ingest.inbox_errors import ModelMismatchError
from calibrant_server.workers.store.batch_records import BatchReceipt
from calibrant_server.workers.store.key_names import model_key
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_events import with_version
from calibrant_server.workers.store.registry import RevisionConflict

QUOTA_RETRY_S = 60
VERSION_TRIES = 5
MAX_CONFIGS_BYTES = 32 * 1024 * 1024
ROWS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


# Not frozen: one is made for each request, which takes a frozen dataclass several times as long.
@dataclass
class IngestContext:
    """What preparing a batch needs besides the body. `config` is None if the model does not exist yet.

    Preparation sets `version`: the version of the model that the batch states, and the time of its first prediction.
    """

    tenant: str
    model: str
    config: ModelConfig | None
    partial: bool
    received_at: datetime
    idempotency_key: str | None
    settings: Settings
    limits: Limits
    share: float = 1.0
    version: tuple[str, datetime] | None = None

    def batch(
        self,
        config: ModelConfig,
        kind: str,
        payload: bytes,
        digest: bytes,
        n_accepted: int,
        *,
        batch_id: str | None = None,
        violations: Sequence[Violation] = (),
        retains: bool = False,
        places: Places | None = None,
        ids: tuple[str, ...] = (),
        origin: SourceOffsets | None = None,
        notes: InputNotes = NO_NOTES,
    ) -> IngestBatch:
        """Return the batch to append; its id is the one of body or header, else a new one."""
        return IngestBatch.of(
            config,
            agreed_batch_id(batch_id, self.idempotency_key),
            kind,
            payload,
            digest,
            n_accepted,
            received_at=self.received_at,
            retains=retains,
            partial=self.partial,
            places=places,
            create=self.config is None,
            violations=violations,
            ids=ids,
            origin=origin,
            share=self.share,
            checked_revision=None if self.config is None else self.config.revision,
            notes=notes,
        )


Prepare = Callable[[Body, IngestContext], IngestBatch]


def _n_bytes(config: ModelConfig) -> int:
    """Return about how many bytes a configuration takes in memory."""
    return 1000 + 4 * len(config.to_json())


class IngestService:
    """What all requests that send batches share."""

    def __init__(
        self, settings: Settings, connection: Connection, admission: Admission, keyring: Keyring
    ) -> None:
        self.settings, self.keyring = settings, keyring
        self.inbox = connection.inbox
        self.registry = connection.registry
        self.admission = admission
        # Configurations as they were last read, by `tenant/model`.
        self.configs: LRUCache[str, ModelConfig] = LRUCache(MAX_CONFIGS_BYTES, _n_bytes)
        engine = engine_settings(settings)
        self.limits = Limits(engine.max_panes, engine.future_skew_s)

    async def enqueue(
        self, batch: IngestBatch, checked_revision: int | None = None
    ) -> BatchReceipt:
        """Append a batch, within its tenant's part of what tenants share.

        Raises
        ------
        ModelMismatch
            `checked_revision` is not the current one, or the model was deleted or created again.
        """
        share = self.keyring.share_of_tenant(self.settings.tenant_share)
        if (batch.share, batch.checked_revision) != (share, checked_revision):
            batch = replace(batch, share=share, checked_revision=checked_revision)
        return await self.inbox.enqueue(batch)

    async def check_new_model(self, tenant: str) -> None:
        """Raise QuotaFull unless the tenant may have another model.

        Concurrent requests may exceed the limit by their number.
        """
        if not await self.registry.has_fewer(tenant, self.settings.tenant_models):
            most = self.settings.tenant_models
            detail = f"Your tenant has {most} models, the maximum. Delete one, or ask the operator."
            raise QuotaFull(detail, retry_after_s=QUOTA_RETRY_S)


class IngestAccess:
    """One request that sends to a model; its caller has the scope `ingest`.

    Attributes
    ----------
    deadline_s : time for the store to accept the batch; None: as long as it is retried
    """

    def __init__(
        self,
        service: IngestService,
        request: Request,
        caller: Caller,
        model: str,
        deadline_s: float | None = None,
    ) -> None:
        self.service = service
        self.request = request
        self.caller = caller
        self.model = model
        self.deadline_s = deadline_s

    async def take(
        self,
        partial: bool,
        prepare: Prepare,
        has_body: bool = True,
        is_costly: bool = False,
        takes: Sequence[str] = (JSON, NDJSON),
    ) -> Response:
        """Read, prepare and append a batch; return its receipt. A costly one is prepared in a thread whatever its size."""
        service, key = self.service, model_key(self.caller.tenant, self.model)
        if has_body:
            # A recent rejection of a batch says nothing about a deletion, which needs no room.
            service.admission.check(key)
        with service.admission.hold() as hold, service.admission.remembering(key):
            config = await self._config()
            body = Body("", b"")
            if has_body:
                body = await read_body(self.request, service.settings, hold, takes)
            batch, receipt = await self._appended(config, partial, prepare, body, is_costly)
        return await self._response(batch, receipt)

    async def append(self, body: Body, prepare: Prepare) -> BatchReceipt:
        """Prepare and append the valid rows of a body that was read before; return the receipt."""
        key = model_key(self.caller.tenant, self.model)
        self.service.admission.check(key)
        with self.service.admission.remembering(key):
            config = await self._config()
            _, receipt = await self._appended(config, True, prepare, body, False)
        return receipt

    async def _appended(
        self,
        config: ModelConfig | None,
        partial: bool,
        prepare: Prepare,
        body: Body,
        is_costly: bool,
    ) -> tuple[IngestBatch, BatchReceipt]:
        """Prepare and append a batch; again if its model was changed since its configuration was read."""
        for last in (False, False, True):
            context = self._context(config, partial)
            try:
                if is_costly or body.is_large:
                    batch = await in_thread(prepare, body, context)
                else:
                    batch = prepare(body, context)
            except (CalibrationInputError, Problem):
                if config is None or last or not await self._has_changed(config):
                    raise
                config = await self._config()
                continue
            revision = None if config is None else config.revision
            try:
                async with asyncio.timeout(self.deadline_s):
                    receipt = await self.service.enqueue(batch, revision)
                await self._note_version(context)
                if not receipt.duplicate:
                    self.request.app.state.metrics.accept(batch.kind, receipt.accepted)
                return batch, receipt
            except TimeoutError as error:
                raise StoreUnavailable() from error
            except ModelMismatchError:
                self.service.configs.pop(model_key(self.caller.tenant, self.model), None)
                if config is None or last:
                    raise
            config = await self._config()
        raise AssertionError  # the last attempt returns or raises

    async def _note_version(self, context: IngestContext) -> None:
        """Add the event of a new version to the model; another process may do so at the same time."""
        if context.version is None:
            return
        registry, config = self.service.registry, context.config
        for _ in range(VERSION_TRIES):
            config = config or await registry.get(context.tenant, context.model)
            if config is None or (changed := with_version(config, *context.version)) is config:
                return
            try:
                await registry.put(changed, config.revision)
            except RevisionConflict as conflict:
                config = conflict.current

    async def _has_changed(self, config: ModelConfig) -> bool:
        """Whether the model was changed since it was last read; it is then read again."""
        if await self.service.registry.get(self.caller.tenant, self.model) == config:
            return False
        self.service.configs.pop(config.key, None)
        return True

    async def known_config(self) -> ModelConfig | None:
        """Return the model as it was last read: the store accepts the batch only if it is still so."""
        key = model_key(self.caller.tenant, self.model)
        config: ModelConfig | None = self.service.configs.get(key)
        if config is None:
            config = await self.service.registry.get(self.caller.tenant, self.model)
            if config is not None and _n_bytes(config) <= MAX_CONFIGS_BYTES:
                self.service.configs[key] = config
        return config

    async def _config(self) -> ModelConfig | None:
        """Return the model; None if the batch may make it."""
        config = await self.known_config()
        if config is None:
            if not self.service.settings.create_models:
                raise ModelUnknown()
            await self.service.check_new_model(self.caller.tenant)
        return config

    def _context(self, config: ModelConfig | None, partial: bool) -> IngestContext:
        return IngestContext(
            tenant=self.caller.tenant,
            model=self.model,
            config=config,
            partial=partial,
            received_at=datetime.now(UTC),
            idempotency_key=only(self.request, "idempotency-key"),
            settings=self.service.settings,
            limits=self.service.limits,
            share=self.service.keyring.share_of_tenant(self.service.settings.tenant_share),
        )

    async def _response(self, batch: IngestBatch, receipt: BatchReceipt) -> Response:
        wait = preferred_wait(self.request)
        headers = {} if wait is None else {"Preference-Applied": f"wait={wait}"}
        if wait and not receipt.is_final:
            later = await self.service.inbox.wait_merged(
                batch.model, batch.batch_id, wait, was_there=True
            )
            # A repeat stays a repeat, whatever its record says by now.
            is_repeat = receipt.duplicate or later.duplicate
            receipt = replace(later, duplicate=is_repeat)
        status = 200 if receipt.is_final else 202
        if status == 202:
            headers["Location"] = f"/v1/models/{self.model}/batches/{receipt.batch_id}"
        body = receipt_body(self.model, receipt) | batch.notes.to_dict()
        return Response(orjson.dumps(body), status, headers, "application/json")


def digest_of(payload: bytes) -> bytes:
    """Return 16 bytes that identify the content of a payload."""
    return blake2b(payload, digest_size=16).digest()


def digest_of_all(accepted: bytes, rejected: list[Any]) -> bytes:
    """Return the digest of a batch as sent: the accepted rows and the rejected ones."""
    if not rejected:
        return accepted
    return digest_of(accepted + orjson.dumps(rejected, default=str, option=ROWS))


def receipt_body(model: str, receipt: BatchReceipt) -> dict[str, Any]:
    """Return the members of an ingest response."""
    body = {
        "model": model,
        "batch_id": receipt.batch_id,
        "status": receipt.status,
        "accepted": receipt.accepted,
        "rejected": receipt.rejected,
        "duplicate": receipt.duplicate,
        "durability": receipt.durability,
        "errors": receipt.errors,
    }
    for name in ("duplicate_reason", "duplicate_rows", "stale_rows", "conflicts", "slices_other"):
        if getattr(receipt, name):
            body[name] = getattr(receipt, name)
    for name in ("stale", "joined", "waiting"):
        if getattr(receipt, name) is not None:
            body[name] = getattr(receipt, name)
    if receipt.waiting:
        body["notice"] = waiting_notice(receipt.waiting)
    return body


def waiting_notice(n: int) -> str:
    """Return the sentence about labels whose prediction has not arrived.

    >>> waiting_notice(1)
    'Rows with labels whose id was never sent with a prediction: 1. They do not count until it arrives; correct the id if it was sent.'
    """
    return f"Rows with labels whose id was never sent with a prediction: {n:,}. They do not count until it arrives; correct the id if it was sent."
