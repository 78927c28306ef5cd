"""The audit log: who changed what, as a list or as one export."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from calibrant_server.service.http.bodies import NDJSON
from calibrant_server.service.http.lists import (
    ListPage,
    cursor_of,
    invalid_cursor,
    sort_key_of,
)
from calibrant_server.service.reads.collection import Collection, CollectionAccess, Page
from calibrant_server.service.security.keys import Caller, needs

router = APIRouter(tags=["keys"], default_response_class=Response)

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


@AUDIT.lists("listAudit", media_types=(NDJSON,))
async def list_audit(access: CollectionAccess) -> Page | Response:
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
