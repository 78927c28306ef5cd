"""Keys of callers that were created through the API: one hash for all tenants, which every service process reads completely.

Only the SHA-256 of a key is stored. A counter in the same hash changes with every change, so that a process that looks
every few seconds reads one field while nothing changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from calibrant_server.workers.store.script import StorePart

MAX_KEYS = 1000  # per tenant
CHANGES = "*"


class TooManyKeys(RuntimeError):
    """The tenant has the maximum number of keys."""


class AccessKeys(StorePart):
    """Keys of callers, for the event loop. `store_retries` repeats a call after transient errors."""

    @property
    def _name(self) -> str:
        return self._keys.access_keys

    async def changes(self) -> int:
        """Return the number of changes so far."""
        return int(await self._retried(lambda: self._client.hget(self._name, CHANGES)) or 0)

    async def all(self) -> tuple[int, dict[str, Mapping[str, object]]]:
        """Return the number of changes so far, and every key by its id."""
        found = await self._retried(lambda: self._client.hgetall(self._name))
        n_changes = int(found.pop(CHANGES.encode(), 0))
        return n_changes, {name.decode(): json.loads(text) for name, text in found.items()}

    async def add(self, tenant: str, key_id: str, entry: Mapping[str, object]) -> None:
        """Store a key; the same key again changes nothing.

        Raises
        ------
        TooManyKeys
        """
        mark = f'"tenant":{json.dumps(tenant)}'
        text = json.dumps(entry, separators=(",", ":"))
        added = await self._retried(
            lambda: self._run("add_key", [self._name], [key_id, text, mark, MAX_KEYS])
        )
        if not added:
            raise TooManyKeys(tenant)

    async def revoke(self, tenant: str, key_id: str) -> bool:
        """Remove a key of a tenant; return whether there was one."""
        text = await self._retried(lambda: self._client.hget(self._name, key_id))
        if text is None or key_id == CHANGES or json.loads(text)["tenant"] != tenant:
            return False

        async def once() -> None:
            async with self._client.pipeline(transaction=True) as pipe:
                pipe.hdel(self._name, key_id)
                pipe.hincrby(self._name, CHANGES, 1)
                await pipe.execute()

        await self._retried(once)
        return True
