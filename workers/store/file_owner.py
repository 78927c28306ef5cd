"""Which store the files at CALIBRANT_COLD_URL belong to: the store and a marker among the files have the same identity."""

from __future__ import annotations

import asyncio
import math
import time
from secrets import token_hex
from typing import Any

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.file_store import NOT_SET, FileStore, FilesUnavailable
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.properties import StoreMismatch

# Before the identity, until the marker was written.
_NEW = b"new:"
_CHECK_S, _CHECK_AGE_S = 1.0, 10.0


def claim_files(client: Any, name: str, place: FileStore) -> None:
    """Mark an empty place as that of this store, the first time; check it every time.

    Raises
    ------
    FilesUnavailable
        There is no such place, or it belongs to another store.
    """
    client.set(name, _NEW + token_hex(16).encode(), nx=True)
    known = client.get(name)
    if known.startswith(_NEW) and place.owner() is None:
        place.claim(_identity(known))
    found = problem(place, known)
    if found is not None:
        raise FilesUnavailable(found)
    if known.startswith(_NEW):
        client.set(name, _identity(known))


def problem(place: FileStore | None, known: bytes | None) -> str | None:
    """Return why the files of a store cannot be read or written now; None if they can, or if it has none."""
    if place is None or known is None:
        return None
    try:
        found = place.owner()
    except FilesUnavailable as error:
        return str(error)
    if found is None:
        return "the place of the files is empty or not mounted"
    if found != _identity(known):
        return "the files at CALIBRANT_COLD_URL belong to another store"
    return None


class FileHealth:
    """Whether the files of a store can be read and written, for the event loop: a check that is late counts as failed."""

    def __init__(self, client: Any, keys: Keys):
        self._client = client
        self._name = keys.files_owner
        self._place = None if keys.files is None else keys.files.place
        self._checked_at, self._is_unavailable = -math.inf, False

    async def is_unavailable(self) -> bool:
        """Return the result of a check that is at most some seconds old; False if the store has no files."""
        place = self._place
        if place is None or time.monotonic() - self._checked_at < _CHECK_AGE_S:
            return self._is_unavailable
        known = await self._client.get(self._name)
        checked = asyncio.create_task(asyncio.to_thread(problem, place, known))
        done, _ = await asyncio.wait([checked], timeout=_CHECK_S)
        self._is_unavailable = not done or checked.result() is not None
        self._checked_at = time.monotonic()
        return self._is_unavailable

    async def require(self) -> None:
        """Raise FilesUnavailable if the files cannot be read now."""
        known = await self._client.get(self._name)
        if known is None or self._place is None:
            raise FilesUnavailable(NOT_SET)
        found = await asyncio.to_thread(problem, self._place, known)
        if found is not None:
            raise FilesUnavailable(found)


def require_setting(settings: EngineSettings, known: bytes | None) -> None:
    """Raise StoreMismatch if a store has files and the process does not know where."""
    if known is not None and settings.cold_url is None:
        raise StoreMismatch("the store has days in files: set CALIBRANT_COLD_URL as before")


def _identity(known: bytes) -> str:
    return known.removeprefix(_NEW).decode()
