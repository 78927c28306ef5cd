"""The audit of a request: whether an entry is due, and what it says besides key, operation and subject; and its record.

The entry is written after the change and before its response is sent. A client that has received a success therefore finds it. If the
process dies between the two, the change is made, the log has no entry, and the client has no response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging import getLogger
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.types import Scope

from calibrant_server.service.http.engine_errors import engine_errors
from calibrant_server.service.http.problems import Problem, StoreUnavailable
from calibrant_server.workers.store.audit_log import Change

if TYPE_CHECKING:
    from calibrant_server.service.security.keys import Caller

UNRECORDED = "The change was made, but the store could not record it in the audit log. Read it again before you repeat it."

log = getLogger("service.audit")


@dataclass
class Audit:
    """What the log will say about one request."""

    is_due: bool = False
    details: dict[str, Any] = field(default_factory=dict)


def audit_of(request: Request) -> Audit:
    """Return the audit of a request."""
    found: Audit = request.scope.setdefault("audit", Audit())
    return found


def _who(caller: Caller) -> dict[str, str]:
    found = {"id": caller.key_id, "name": caller.name}
    return {**found, "role": caller.role} if caller.role else found


async def record(scope: Scope, status: int) -> Problem | None:
    """Append the entry of a request that succeeded, if one is due; return the problem if it cannot be stored."""
    audit: Audit | None = scope.get("audit")
    if audit is None or not audit.is_due or status >= 400:
        return None
    audit.is_due = False
    caller, state = scope["caller"], scope["app"].state
    entry: Change = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "action": scope["route"].operation_id,
        "subject": dict(scope["path_params"]),
        "key": _who(caller) if caller.key_id else None,
        "client": scope["client"][0] if scope.get("client") else None,
        "request_id": scope.get("request_id"),
        "status": status,
        "details": audit.details,
    }
    try:
        with engine_errors():
            await state.connection.inbox.audit.append(caller.tenant, entry)
    except StoreUnavailable as problem:
        log.error("audit_entry_lost entry=%s", entry)
        return StoreUnavailable(UNRECORDED, retry_after_s=problem.retry_after_s)
    return None
