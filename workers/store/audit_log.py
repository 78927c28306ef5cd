"""The audit log: who changed what, one stream per tenant that is only appended to.

The store drops the oldest entries above `MAX_ENTRIES`. Nothing else removes an entry: no operation of the API does, and the
log of a model outlives the model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, TypedDict, cast

from calibrant_server.workers.store.script import StorePart

MAX_ENTRIES = 100_000  # per tenant
_BLOCK = 500


class Change(TypedDict):
    """A change, as it is appended.

    `subject` has the parameters of the path, `key` id, name and role of the caller (None if the service ran without keys), and
    `details` the changed values.
    """

    at: str
    action: str
    subject: dict[str, Any]
    key: dict[str, str] | None
    client: str | None
    request_id: str | None
    status: int
    details: dict[str, Any]


class Entry(Change):
    """A change with its position in the log."""

    id: str


class AuditLog(StorePart):
    """Audit logs of all tenants, for the event loop. `store_retries` repeats a call after transient errors.

    An entry whose reply is lost is appended again: the log then has it twice, with the same request id.
    """

    async def append(self, tenant: str, entry: Change) -> None:
        """Append one entry."""
        name, text = self._keys.audit(tenant), json.dumps(entry, separators=(",", ":"))
        await self._retried(lambda: self._run("append_entry", [name], [MAX_ENTRIES, "e", text]))

    async def newest(self, tenant: str, before: str | None, limit: int) -> list[Entry]:
        """Return at most `limit` entries, newest first, from before the entry with the id `before`."""
        name, end = self._keys.audit(tenant), "+" if before is None else f"({before}"
        found = await self._retried(
            lambda: self._client.xrevrange(name, max=end, min="-", count=limit)
        )
        return [_entry(each) for each in found]

    async def oldest_first(self, tenant: str) -> AsyncIterator[Entry]:
        """Yield every entry, oldest first, as of the time at which each block is read."""
        name, start = self._keys.audit(tenant), "-"
        while found := await self._block(name, start):
            for each in found:
                yield _entry(each)
            start = f"({found[-1][0].decode()}"

    async def _block(self, name: str, start: str) -> list[Any]:
        found: list[Any] = await self._retried(
            lambda: self._client.xrange(name, min=start, max="+", count=_BLOCK)
        )
        return found


def _entry(found: Any) -> Entry:
    entry_id, fields = found
    return cast(Entry, {"id": entry_id.decode(), **json.loads(fields[b"e"])})
