"""Files of old days outside Redis: put, get and delete in a directory, or in an object store that fsspec reaches.

Names are relative, with `/`. A file is written once, under a name of its own, and never changed. A marker among the files has the
identity of the store that they belong to: it distinguishes a place that is not mounted from one that lost its files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.key_names import Keys
from calibrant_server.workers.store.properties import StoreMismatch

log = logging.getLogger(__name__)

NOT_SET = "the store has days in files, and CALIBRANT_COLD_URL is not set for this process"
MARKER = "calibrant-days.json"
# An object store that does not respond: requests wait for it, so briefly.
_CONNECT_S, _READ_S = 3, 20
# Files that are read or written at the same time.
AT_ONCE = 8
# After a failure, no request is sent for this long.
_REST_S = 1.0
# After a failed move, the process moves nothing for this long, doubled with each further failure.
_FIRST_PAUSE_S, _MAX_PAUSE_S = 5.0, 600.0
# A store of files that failed for this long is not waited for.
LASTING_S = 15.0

T = TypeVar("T")
A = TypeVar("A")


class FilesUnavailable(RuntimeError):
    """The file store cannot be reached. Nothing was decided: the same request succeeds later."""

    retry_after_s = 5


class Directory:
    """Files in a directory of this machine, or of a file system that all machines mount."""

    def __init__(self, url: str):
        self._root = Path(url.removeprefix("file://"))

    def put(self, name: str, data: bytes) -> None:
        """Write a file durably; until this returns, nobody knows its name."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for folder in (path.parent, *path.parent.parents):
            _sync(folder)
            if folder == self._root:
                break

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return (self._root / name).read_bytes()

    def delete(self, name: str) -> None:
        """Remove a file, and the folders that are empty then."""
        path = self._root / name
        path.unlink(missing_ok=True)
        for parent in path.relative_to(self._root).parents[:-1]:
            with suppress(OSError):
                (self._root / parent).rmdir()


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class ObjectStore:
    """Files of a store that fsspec reaches, such as `s3://bucket/prefix`. It is opened where it is used first: not before a fork."""

    def __init__(self, url: str):
        self._url = url

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(self._url, **_options(self._url))
        if hasattr(files, "retries"):
            files.retries = 1  # of s3fs, beside those of its client; the engine repeats
        return files, root.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        files, root = self._opened
        files.pipe_file(f"{root}/{name}", data)

    def get(self, name: str) -> bytes:
        files, root = self._opened
        found: bytes = files.cat_file(f"{root}/{name}")
        return found

    def delete(self, name: str) -> None:
        files, root = self._opened
        with suppress(FileNotFoundError):
            files.rm_file(f"{root}/{name}")


def _options(url: str) -> dict[str, Any]:
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if url.startswith(("s3://", "s3a://")):
        times = {"connect_timeout": _CONNECT_S, "read_timeout": _READ_S}
        options["config_kwargs"] = {**times, "retries": {"max_attempts": 2}}
    return options


class FileStore:
    """A place of files; several threads may share one object.

    Whatever the place raises, but that a file is missing, is a state of it. After a failure, requests fail at once for a moment:
    queries do not queue for a place that does not respond.
    """

    def __init__(self, url: str):
        is_local = "://" not in url or url.startswith("file://")
        self._place = Directory(url) if is_local else ObjectStore(url)
        self._failed_at = self._failing_since = -1.0
        self._why = ""
        self._pause_s = _FIRST_PAUSE_S
        self._rests_to = 0.0

    @property
    def is_lasting(self) -> bool:
        """Whether the store of files has failed for a while."""
        since = self._failing_since
        return since >= 0 and time.monotonic() - since > LASTING_S

    @property
    def rest_s(self) -> float:
        """For how many seconds nothing is to be moved."""
        return max(0.0, self._rests_to - time.monotonic())

    def rest(self) -> None:
        """Move nothing for a while, after a failed move."""
        self._rests_to = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Threads for several files at the same time. They begin at the first use: not before a fork."""
        return ThreadPoolExecutor(AT_ONCE, "days")

    def at_once(self, work: Callable[[A], T], several: Sequence[A]) -> list[T]:
        """Return the results of work on several files, `AT_ONCE` at a time."""
        return list(self._threads.map(work, several))

    def put(self, name: str, data: bytes) -> None:
        """Write a file durably, read it back and compare."""
        try:
            self._call(lambda: self._place.put(name, data))
            written = self._call(lambda: self._place.get(name))
        except FileNotFoundError as error:  # of a bucket, or a folder that is gone
            raise FilesUnavailable(f"there is no place for files: {error}"[:300]) from error
        if written != data:
            raise FilesUnavailable(f"the file {name} was read back with other bytes")
        self._pause_s = _FIRST_PAUSE_S

    def get(self, name: str) -> bytes:
        """Return the bytes of a file; raise FileNotFoundError where the place has others."""
        try:
            return self._call(lambda: self._place.get(name))
        except FileNotFoundError:
            if self.owner() is None:
                raise FilesUnavailable("the place of the files is empty or not mounted") from None
            raise

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._call(lambda: self._place.delete(name))

    def owner(self) -> str | None:
        """Return the identity of the store that these files belong to; None if the place is empty."""
        try:
            return str(json.loads(self._call(lambda: self._place.get(MARKER)))["store"])
        except FileNotFoundError:
            return None

    def claim(self, store: str) -> None:
        """Mark the place as that of a store."""
        text = json.dumps({"store": store, "about": "sealed days of Calibrant; see docs/state.md"})
        self.put(MARKER, text.encode())

    def _call(self, work: Callable[[], T]) -> T:
        if time.monotonic() - self._failed_at < _REST_S and self._failed_at >= 0:
            raise FilesUnavailable(self._why)
        try:
            found = work()
        except (FileNotFoundError, MemoryError):
            self._failed_at = self._failing_since = -1.0
            raise
        except Exception as error:  # each store of files has errors of its own
            self._note_failure(f"{type(error).__name__}: {error}")
            raise FilesUnavailable(self._why) from error
        self._failed_at = self._failing_since = -1.0
        return found

    def _note_failure(self, error: str) -> None:
        self._why = f"the store of files does not respond: {error}"[:300]
        self._failed_at = time.monotonic()
        if self._failing_since < 0:
            self._failing_since = self._failed_at
            log.warning("cold_files_unavailable error=%s", self._why)


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
