"""Takes batches at the door: from a request to a receipt.

The order is that of cost: key, remembered refusals, headers, size, bytes, form, meaning, store. What a
batch holds is prepared by the route's own function; everything around it is the same for all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import Violation
from calibrant_server.service.engine import Connection, engine_errors, engine_settings
from calibrant_server.service.http.bodies import Body, read_body
from calibrant_server.service.http.errors import ImportUnfinished, ModelUnknown
from calibrant_server.service.http.headers import only, preferred_wait
from calibrant_server.service.http.identifiers import agreed_batch_id
from calibrant_server.service.http.threads import aside_if_large
from calibrant_server.service.openapi.schema import ProblemError
from calibrant_server.service.security.admission import Admission
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.entries import Places
from calibrant_server.workers.ingest.inbox import IngestBatch, Receipt
from calibrant_server.workers.store.registry import HalfImported, ModelConfig
from calibrant_server.workers.store.windows import Limits

ROWS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


class IngestQuery(BaseModel):
    """Query of an operation that takes a batch."""

    model_config = ConfigDict(extra="forbid")

    partial: bool = Field(False, description="Accept the good rows and answer the bad ones.")


class IngestResponse(BaseModel):
    """What became of a batch."""

    model: str
    batch_id: str
    status: str = Field(
        description="accepted, parked, merged, rejected or dead_lettered. Parked: kept, and merged once an operator replays it"
    )
    accepted: int
    rejected: int
    duplicate: bool = Field(description="The same id and content came before; nothing was counted.")
    durability: str = Field(description="everysec, replicated or fsync: what a crash may take.")
    stale: bool | None = Field(None, description="Only for running totals: a later one is there.")
    duplicate_rows: int = Field(0, description="Rows whose id and content came before.")
    stale_rows: int = Field(0, description="Ratings older than what is known of their raters.")
    conflicts: int = Field(0, description="Rows whose id came before with other content.")
    slices_other: dict[str, int] = Field(
        {}, description="By slice key, rows whose value found no room and that fill key:other."
    )
    errors: list[ProblemError]


@dataclass(frozen=True)
class Sender:
    """Who sends to which model: what every step needs."""

    caller: Caller
    model: str

    @property
    def key(self) -> str:
        """Return the model's key in the store."""
        return f"{self.caller.tenant}/{self.model}"


@dataclass(frozen=True)
class PreparedBatch:
    """What a body was found to hold, ready to hand over."""

    config: ModelConfig
    kind: str
    payload: bytes
    digest: bytes
    n_accepted: int
    violations: list[Violation]
    batch_id: str | None
    retains: bool = False
    places: Places | None = None
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Circumstances:
    """What preparing a load needs beside the body."""

    sender: Sender
    config: ModelConfig | None
    partial: bool
    received_at: datetime
    settings: Settings
    limits: Limits


Prepare = Callable[[Body, Circumstances], PreparedBatch]


class IngestService:
    """The door's side of ingest."""

    def __init__(self, settings: Settings, connection: Connection, admission: Admission) -> None:
        self.settings = settings
        self.inbox = connection.inbox
        self.registry = connection.registry
        self.admission = admission
        engine = engine_settings(settings)
        self.limits = Limits(engine.max_panes, engine.future_skew_s)

    async def take(
        self, request: Request, sender: Sender, partial: bool, prepare: Prepare
    ) -> Response:
        """Read, prepare and hand over the batch in `request`, and answer with its receipt."""
        self.admission.check(sender.key)
        with (
            self.admission.hold() as hold,
            self.admission.remembering(sender.key),
            engine_errors(),
        ):
            config = await self._known(sender)
            body = await read_body(request, self.settings, hold)
            now = datetime.now(UTC)
            given = Circumstances(sender, config, partial, now, self.settings, self.limits)
            load = await aside_if_large(len(body.data), prepare, body, given)
            delivery = _delivery(load, request, given)
            receipt = await self.inbox.hand_over(delivery)
        return await self._answered(request, delivery, receipt)

    async def take_bodiless(self, sender: Sender, request: Request, prepare: Prepare) -> Response:
        """As `take`, for a request whose path says everything."""
        self.admission.check(sender.key)
        with self.admission.remembering(sender.key), engine_errors():
            config = await self._known(sender)
            now = datetime.now(UTC)
            given = Circumstances(sender, config, False, now, self.settings, self.limits)
            delivery = _delivery(prepare(Body("", b""), given), request, given)
            receipt = await self.inbox.hand_over(delivery)
        return await self._answered(request, delivery, receipt)

    async def _known(self, sender: Sender) -> ModelConfig | None:
        config = await self.registry.get(sender.caller.tenant, sender.model)
        if config is None and not self.settings.create_models:
            raise ModelUnknown()
        return config

    async def _answered(
        self, request: Request, delivery: IngestBatch, receipt: Receipt
    ) -> Response:
        wait = preferred_wait(request)
        headers = {} if wait is None else {"Preference-Applied": f"wait={wait}"}
        if wait and not receipt.is_final:
            with engine_errors():
                receipt = await self._merged(delivery, receipt, wait)
        status = 200 if receipt.is_final else 202
        if status == 202:
            headers["Location"] = f"/v1/models/{delivery.model.model}/batches/{receipt.batch_id}"
        body = receipt_body(delivery.model.model, receipt)
        return Response(orjson.dumps(body), status, headers, "application/json")

    async def _merged(self, delivery: IngestBatch, receipt: Receipt, wait: int) -> Receipt:
        """Return what came of the batch within `wait` seconds, still as a repeat if it was one."""
        later = await self.inbox.wait_merged(
            delivery.model.key, receipt.batch_id, wait, was_there=True
        )
        return replace(later, duplicate=receipt.duplicate or later.duplicate)


def _delivery(load: PreparedBatch, request: Request, given: Circumstances) -> IngestBatch:
    batch_id = agreed_batch_id(load.batch_id, only(request, "idempotency-key"))
    return IngestBatch(
        model=load.config,
        batch_id=batch_id,
        kind=load.kind,
        payload=load.payload,
        digest=load.digest,
        n_accepted=load.n_accepted,
        n_rejected=len(load.violations),
        errors=[vars(violation) for violation in load.violations],
        received_at=given.received_at,
        create=given.config is None,
        retains=load.retains,
        partial=given.partial,
        places=load.places,
        ids=load.ids,
    )


def digest_of(payload: bytes) -> bytes:
    """Return sixteen bytes that tell whether two payloads hold the same content."""
    return blake2b(payload, digest_size=16).digest()


def digest_of_all(accepted: bytes, rejected: list[Any]) -> bytes:
    """Return the digest of a batch as it was sent: of the rows that are taken, and of those that are not."""
    if not rejected:
        return accepted
    return digest_of(accepted + orjson.dumps(rejected, default=str, option=ROWS))


def receipt_body(model: str, receipt: Receipt) -> dict[str, Any]:
    """Return the members of an ingest answer."""
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
    for name in ("duplicate_rows", "stale_rows", "conflicts", "slices_other"):
        if getattr(receipt, name):
            body[name] = getattr(receipt, name)
    return body if receipt.stale is None else {**body, "stale": receipt.stale}


async def model_of(connection: Connection, caller: Caller, model: str) -> ModelConfig:
    """Return the caller's model; another tenant's is as unknown as one that never was, and so is half a model."""
    with engine_errors():
        try:
            config = await connection.registry.get(caller.tenant, model)
        except HalfImported as error:
            raise ModelUnknown(ImportUnfinished.message()) from error
    if config is None:
        raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
    return config
