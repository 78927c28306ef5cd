"""A tenant: the audit log of who changed what, as a list or as one export; and what the tenant uses of its limits."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, Response
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from calibrant_server.service.engine import engine_settings
from calibrant_server.service.http.bodies import JSON, NDJSON
from calibrant_server.service.http.event_streams import Streams
from calibrant_server.service.http.lists import (
    ListPage,
    cursor_of,
    invalid_cursor,
    sort_key_of,
)
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import Access, Operations, Page
from calibrant_server.service.security.keys import Caller, Keyring, needs
from calibrant_server.workers.store.access_keys import MAX_KEYS

router = Operations("keys")

POSITION = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")
Auditor = Annotated[Caller, Depends(needs("admin", every_model=True))]


class AuditKey(BaseModel):
    """The key that made a change, or the person whom a proxy named."""

    id: str
    name: str
    role: str | None = None


class AuditEntry(BaseModel):
    """One change."""

    id: str = Field(description="Position in the log: milliseconds and a number.")
    at: str
    action: str = Field(description="`operationId` of the operation.")
    subject: dict[str, Any] = Field(description="What was changed: the parameters of the path.")
    key: AuditKey | None = Field(description="Null while the service ran without keys.")
    client: str | None = Field(description="Address of the client, or of the last proxy.")
    request_id: str | None
    status: int
    details: dict[str, Any] = Field(description="The changed values, without secrets.")


class AuditResponse(ListPage):
    """Changes, newest first."""

    entries: list[AuditEntry]


AUDIT = Collection(
    router,
    "/v1/audit",
    "entries",
    AuditEntry,
    Auditor,
    f"A page of changes, newest first. `Accept: {NDJSON}` returns all, oldest first, one per line.",
    page=AuditResponse,
)


@AUDIT.lists(media_types=(NDJSON,))
async def list_audit(access: Access) -> Page | Response:
    """List who changed settings, maps, alarms, models and keys of your tenant.

    The last 100,000 changes are stored.
    """
    log, tenant, query = access.connection.inbox.audit, access.caller.tenant, access.query
    if NDJSON in access.request.headers.get("accept", ""):

        async def lines() -> AsyncIterator[bytes]:
            async for entry in log.oldest_first(tenant):
                yield orjson.dumps(entry) + b"\n"

        return StreamingResponse(lines(), media_type=NDJSON, headers={"Cache-Control": "no-store"})
    before = None if query.cursor is None else _position(query.cursor)
    found = await log.newest(tenant, before, query.limit + 1)
    page, more = found[: query.limit], len(found) > query.limit
    return {"entries": page}, cursor_of([page[-1]["id"]]) if more else None


def _position(cursor: str) -> str:
    """Return the id of the entry that a page ended with."""
    position = str(sort_key_of(cursor)[0])
    if not POSITION.fullmatch(position):
        raise invalid_cursor()
    return position


AnyReader = Annotated[Caller, Depends(needs("read", "admin", every_model=True))]


class Limit(BaseModel):
    """One limit of the tenant."""

    name: Literal[
        "models",
        "keys",
        "requests_per_second",
        "requests_per_second_of_a_key",
        "event_streams",
        "retained_records",
        "retained_bytes",
        "backlog_bytes",
    ]
    limit: float | None = Field(description="Null: unlimited.")
    used: float | None = Field(description="Null for rates: see the header RateLimit.")
    total: int | None = Field(
        None, description="For a total of the store: what the tenant uses of it, as `used`."
    )
    scope: Literal["deployment", "process"] = Field(
        description="What the limit applies to. `process`: `used` is that of the process that responded."
    )


class UsageResponse(BaseModel):
    """The limits of your tenant, and what it uses of them."""

    tenant: str
    limits: list[Limit]


@router.operation("GET /v1/usage", AnyReader, success(UsageResponse, "Usage and limits"))
async def get_usage(access: Access) -> Response:
    """Return the limits of your tenant and what it uses of them."""
    settings, caller, state = access.settings, access.caller, access.request.app.state
    keyring: Keyring = state.keyring
    streams: Streams = state.streams
    engine, share = engine_settings(settings), keyring.share_of_tenant(settings.tenant_share)
    n_models = await access.connection.registry.count(caller.tenant)
    partitions = await access.inbox.usage.by_partition(caller.tenant)
    found = [
        Limit(name="models", limit=settings.tenant_models, used=n_models, scope="deployment"),
        Limit(
            name="keys", limit=MAX_KEYS, used=keyring.n_created(caller.tenant), scope="deployment"
        ),
        Limit(
            name="event_streams",
            limit=max(1, int(settings.max_streams * share)),
            used=streams.of[caller.tenant],
            scope="process",
        ),
    ]
    rates = {
        "requests_per_second": settings.tenant_rate,
        "requests_per_second_of_a_key": settings.key_rate,
    }
    for name, rate in rates.items():
        limit = None if keyring.is_open else rate or None
        found.append(Limit(name=name, limit=limit, used=None, scope="deployment"))
    of_store = {
        "retained_records": (engine.retained_records, [each.records for each in partitions]),
        "retained_bytes": (engine.retained_bytes, [each.record_bytes for each in partitions]),
        "backlog_bytes": (engine.backlog_bytes, [each.backlog_bytes for each in partitions]),
    }
    for name, (bound, used) in of_store.items():
        limit = int(bound * share)
        found.append(
            Limit(name=name, limit=limit, used=sum(used), total=sum(used), scope="deployment")
        )
    body = UsageResponse(tenant=caller.tenant, limits=found).model_dump()
    return Response(orjson.dumps(body), 200, {"Cache-Control": "no-store"}, JSON)
