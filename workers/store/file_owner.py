"""Which store the files at CALIBRANT_COLD_URL belong to.

The store and a marker among the files have the same identity. It distinguishes a place that is not mounted from one that lost its files, and
keeps a store from writing among the files of another.
"""

from __future__ import annotations

import asyncio
import math
import time
from secrets import token_hex
from typing import Any

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.cold_files import NOT_SET, ColdFiles
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.properties import StoreMismatch

# Before the identity, until the marker was written.
_NEW = b"new:"
_CHECK_S, _CHECK_AGE_S = 1.0, 10.0


class FileOwner:
    """The identity of a store, compared with that of the files."""

    def __init__(self, client: Any, keys: Keys):
        self._client = client
        self._keys = keys
        self._files = keys.files

    def ensure(self) -> None:
        """Mark an empty place as that of this store, the first time; check it every time.

        Raises
        ------
        FilesUnavailable
            There is no such place, or it belongs to another store.
        """
        name = self._keys.files_owner
        known = self._client.get(name)
        if known is None:
            self._client.set(name, _NEW + token_hex(16).encode(), nx=True)
            known = self._client.get(name)
        assert self._files is not None
        if known.startswith(_NEW) and self._files.owner() is None:
            self._files.claim(_identity(known))
        self._compare(known)
        if known.startswith(_NEW):
            self._client.set(name, _identity(known))

    def problem(self) -> str | None:
        """Return why files cannot be read or written now; None if they can, or if the store has none."""
        known = self._client.get(self._keys.files_owner)
        if known is None or self._files is None:
            return None
        return problem(self._files, known)

    def _compare(self, known: bytes) -> None:
        assert self._files is not None
        found = problem(self._files, known)
        if found is not None:
            raise FilesUnavailable(found)


def problem(files: ColdFiles, known: bytes) -> str | None:
    """Return why the files of a store cannot be read or written now."""
    try:
        found = files.owner()
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
        self._keys = keys
        self._checked_at, self._is_unavailable = -math.inf, False

    async def is_unavailable(self) -> bool:
        """Return the result of a check that is at most some seconds old; False if the store has no files."""
        files = self._keys.files
        if files is None or time.monotonic() - self._checked_at < _CHECK_AGE_S:
            return self._is_unavailable
        known = await self._client.get(self._keys.files_owner)
        if known is not None:
            checked = files.in_background(lambda: problem(files, known))
            done, _ = await asyncio.wait([asyncio.wrap_future(checked)], timeout=_CHECK_S)
            self._is_unavailable = not done or checked.result() is not None
        self._checked_at = time.monotonic()
        return self._is_unavailable

    async def require(self) -> None:
        """Raise FilesUnavailable if the files cannot be read now."""
        files, known = self._keys.files, await self._client.get(self._keys.files_owner)
        if files is None or known is None:
            raise FilesUnavailable(NOT_SET)
        found = await asyncio.to_thread(problem, files, known)
        if found is not None:
            raise FilesUnavailable(found)


def require_setting(settings: EngineSettings, known: bytes | None) -> None:
    """Raise StoreMismatch if a store has files and the process does not know where."""
    if known is not None and settings.cold_url is None:
        raise StoreMismatch("the store has days in files: set CALIBRANT_COLD_URL as before")


def _identity(known: bytes) -> str:
    return known.removeprefix(_NEW).decode()
