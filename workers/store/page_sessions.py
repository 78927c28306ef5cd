"""Sessions of people who signed in to the pages: which key a cookie stands for, until it expires or they sign out.

Only the SHA-256 of a cookie is stored. So neither the store nor a backup of it gives anybody a session, and a cookie is not
the key: it is accepted by pages only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from calibrant_server.workers.store.keys import Keys

SESSION_S = 12 * 3600
TOKEN_BYTES = 32

StoreRetries = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class PageSessions:
    """Sessions, for the event loop. `store_retries` repeats a call after transient errors."""

    def __init__(self, client: Any, keys: Keys, store_retries: StoreRetries):
        self._client, self._keys, self._retried = client, keys, store_retries

    async def begin(self, key_digest: str) -> str:
        """Return the cookie of a new session of the key with this SHA-256."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        name = self._name(token)
        await self._retried(lambda: self._client.set(name, key_digest, ex=SESSION_S))
        return token

    async def key_digest(self, token: str) -> str | None:
        """Return the SHA-256 of the key that a cookie stands for; None if there is no such session."""
        found = await self._retried(lambda: self._client.get(self._name(token)))
        return None if found is None else found.decode()

    async def end(self, token: str) -> None:
        """End a session."""
        await self._retried(lambda: self._client.delete(self._name(token)))

    def _name(self, token: str) -> str:
        return self._keys.page_session(hashlib.sha256(token.encode()).hexdigest())
