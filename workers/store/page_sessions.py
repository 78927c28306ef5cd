"""Sessions of people who signed in to the pages: which key a cookie stands for, until it expires or they sign out; the secret of forms.

Only the SHA-256 of a cookie is stored. So neither the store nor a backup of it gives anybody a session, and a cookie is not
the key: it is accepted by pages only.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import partial
from typing import Any

from calibrant_server.workers.store.key_names import Keys
from calibrant_server.workers.store.script import StorePart, StoreRetries

SESSION_S = 12 * 3600
TOKEN_BYTES = 32
# Sessions of one key. A team that shares a key has fewer browsers; each costs about 0.4 kB of the store for SESSION_S.
MAX_SESSIONS = 100


class PageSessions(StorePart):
    """Sessions, for the event loop. `store_retries` repeats a call after transient errors."""

    def __init__(self, client: Any, keys: Keys, store_retries: StoreRetries):
        super().__init__(client, keys, store_retries)
        self._form_secret = ""

    async def begin(self, key_digest: str) -> str:
        """Return the cookie of a new session of the key with this SHA-256; its oldest session ends if it has too many."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        name = self._name(token)
        # First listed, then opened: no session is open that is not listed.
        for oldest in await self._retried(lambda: self._listed(key_digest, name)):
            await self._retried(partial(self._client.delete, oldest))
        await self._retried(lambda: self._client.set(name, key_digest, ex=SESSION_S))
        return token

    async def _listed(self, key_digest: str, name: str) -> list[bytes]:
        """Put a session at the head of its key's list; return those beyond the maximum, which are removed from it."""
        of_key = self._keys.page_sessions_of(key_digest)
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.lrem(of_key, 0, name)  # a lost reply: it may be there
            pipe.lpush(of_key, name)
            pipe.lrange(of_key, MAX_SESSIONS, -1)
            pipe.ltrim(of_key, 0, MAX_SESSIONS - 1)
            pipe.expire(of_key, SESSION_S)
            found: list[Any] = await pipe.execute()
        return list(found[2])

    async def key_digest(self, token: str) -> str | None:
        """Return the SHA-256 of the key that a cookie stands for; None if there is no such session."""
        found = await self._retried(lambda: self._client.get(self._name(token)))
        return None if found is None else found.decode()

    async def form_secret(self) -> str:
        """Return the secret under which forms have tokens: one of the store, made once, so that each process knows the others' forms."""
        if not self._form_secret:
            new, name = secrets.token_urlsafe(TOKEN_BYTES), self._keys.form_secret
            await self._retried(lambda: self._client.set(name, new, nx=True))
            found = await self._retried(lambda: self._client.get(name))
            self._form_secret = found.decode()
        return self._form_secret

    async def end(self, token: str) -> None:
        """End a session."""
        name, digest = self._name(token), await self.key_digest(token)
        await self._retried(lambda: self._client.delete(name))
        if digest is not None:
            of_key = self._keys.page_sessions_of(digest)
            await self._retried(lambda: self._client.lrem(of_key, 0, name))

    def _name(self, token: str) -> str:
        return self._keys.page_session(hashlib.sha256(token.encode()).hexdigest())
