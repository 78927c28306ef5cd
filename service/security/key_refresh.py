"""Changes of keys: the keys file and the keys created through the API are looked at every two seconds.

A look costs one `stat` and one read of the store. What cannot be read changes nothing: the keys that were read last stay
active, and the log names the reason once.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Protocol

from redis.exceptions import RedisError

from calibrant_server.service.security.key_file import KeysUnreadable, read_keys
from calibrant_server.service.security.keys import ApiKey, Keyring
from calibrant_server.workers.ingest.inbox import StoreUnavailableError

REFRESH_S = 2.0

log = getLogger("service.keys")


class CreatedKeys(Protocol):
    """The keys in the store."""

    async def changes(self) -> int:
        """Return the number of changes so far."""

    async def all(self) -> tuple[int, Mapping[str, Mapping[str, object]]]:
        """Return the number of changes so far, and every key by its id."""


class KeyRefresh:
    """Keeps the keys of one process up to date."""

    def __init__(self, keyring: Keyring, path: Path | None, store: CreatedKeys) -> None:
        self._keyring, self._path, self._store = keyring, path, store
        self._file = None if path is None else _signature(path)
        self._n_changes: int | None = None
        self._reported = ""

    async def look(self) -> None:
        """Read what has changed. An open service stays open until it is started with keys."""
        if self._keyring.is_open:
            return
        try:
            self._read_file()
            await self.read_store()
            self._reported = ""
        except (KeysUnreadable, StoreUnavailableError, RedisError) as error:
            if str(error) != self._reported:
                log.error("keys_not_refreshed error=%s", error)
            self._reported = str(error)

    def _read_file(self) -> None:
        if self._path is None or (found := _signature(self._path)) == self._file:
            return
        self._keyring.replace(configured=read_keys(self._path))
        self._file = found
        log.info("keys_file_read n_keys=%d", len(self._keyring.configured))

    async def read_store(self) -> None:
        """Read the created keys if any has changed; only new ones are validated, because a key never changes."""
        if await self._store.changes() != self._n_changes:
            n_changes, found = await self._store.all()
            known = {each.id: each for each in self._keyring.created}
            created = [known.get(key) or ApiKey.model_validate(found[key]) for key in found]
            self._keyring.replace(created=created)
            self._n_changes = n_changes

    async def forever(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.look()


@asynccontextmanager
async def refreshed(refresh: KeyRefresh) -> AsyncIterator[None]:
    """Keep keys up to date during the block."""
    await refresh.look()
    task = asyncio.create_task(refresh.forever())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what changes with the content of a file; None if it is absent."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
