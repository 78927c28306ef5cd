"""Reads and writes of the files of cold days: reads of a few columns through a bounded cache, and writes that are read back.

Reads are cached by file, row group and column; files never change. After a failure, further reads fail at once for a moment: queries
do not queue for a store of files that does not respond.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from cachetools import LRUCache

from calibrant.core.extras import pip_install
from calibrant.core.packing import PackingError
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.day_file import (
    DayFile,
    DayFileDamaged,
    DayFooter,
    DayItem,
    digest,
    fields_of,
)
from calibrant_server.workers.store.file_store import FileStore, FilesUnavailable, file_store

log = logging.getLogger(__name__)

NOT_SET = "the store has days in files, and CALIBRANT_COLD_URL is not set for this process"
# Names the store whose files these are. Without it, the place is empty or not mounted.
MARKER = "calibrant-days.json"
# Reads of one query at the same time, and writes and removals of one process.
_READERS, _WRITERS = 8, 2
# After a failure, no request is sent for this long.
_REST_S = 1.0
# A store of files that failed for this long is not waited for.
LASTING_S = 15.0

T = TypeVar("T")
Fields = dict[bytes, bytes]


class FileRead(NamedTuple):
    """Something to read: an item that may be in one of these files."""

    files: Sequence[DayFile]
    item: DayItem
    parts: Sequence[str] | None = None


class _Column(NamedTuple):
    values: list[Any]
    size: int


class ColdFiles:
    """The files of a store's cold days; several threads may share one object.

    Parameters
    ----------
    cache_bytes : bound of what was read and is cached
    """

    def __init__(self, files: FileStore, cache_bytes: int):
        self._files = files
        self._lock = threading.Lock()
        self._cache: LRUCache[Any, Any] = LRUCache(cache_bytes, lambda each: int(each.size))
        self._pools: dict[str, tuple[int, ThreadPoolExecutor]] = {}
        self._failed_at = self._failing_since = -1.0
        self._why = ""

    @property
    def is_lasting(self) -> bool:
        """Whether the store of files has failed for a while."""
        since = self._failing_since
        return since >= 0 and time.monotonic() - since > LASTING_S

    def in_background(self, work: Callable[[], T]) -> Future[T]:
        """Write or remove files without waiting for it."""
        return self._pool("days-write", _WRITERS).submit(work)

    def write(self, name: str, data: bytes) -> DayFile:
        """Write a file, read it back and compare; return how the store is to know it."""
        self._put_file(name, data)
        try:
            written = self._call(lambda: self._files.read(name))
        except FileNotFoundError as error:
            raise FilesUnavailable(f"the file {name} was not found after its writing") from error
        if digest(written) != digest(data):
            raise FilesUnavailable(f"the file {name} was read back with other bytes")
        return DayFile.of(name, data)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._call(lambda: self._files.remove(name))

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [name for name in self._call(self._files.names) if name != MARKER]

    def owner(self) -> str | None:
        """Return the identity of the store that these files belong to; None if the place is empty."""
        try:
            return str(json.loads(self._call(lambda: self._files.read(MARKER)))["store"])
        except FileNotFoundError:
            return None

    def claim(self, store: str) -> None:
        """Mark the place as that of a store."""
        text = json.dumps({"store": store, "about": "sealed days of Calibrant; see docs/state.md"})
        self._put_file(MARKER, text.encode())

    def _put_file(self, name: str, data: bytes) -> None:
        try:
            self._call(lambda: self._files.write(name, data))
        except FileNotFoundError as error:  # of a bucket, or a folder that is gone
            raise FilesUnavailable(f"there is no place for files: {error}"[:300]) from error

    def read(self, read: FileRead) -> Fields | None:
        """Return the fields of an item, or None if it is in none of the files.

        Raises
        ------
        FilesUnavailable
            The store of files does not respond.
        DayFileDamaged
            A file is missing, or has other bytes than were written.
        """
        for file in read.files:
            footer = self._footer(file)
            place = footer.rows.get(read.item)
            if place is not None:
                group, row = place
                columns = footer.wanted(read.item, read.parts)
                values = self._values(footer, group, columns)
                return fields_of({name: values[name].values[row] for name in columns})
        return None

    def read_all(self, reads: Sequence[FileRead]) -> list[Fields | PackingError | None]:
        """Return the results of several reads, at the same time; damage is a result."""

        def one(read: FileRead) -> Fields | PackingError | None:
            try:
                return self.read(read)
            except DayFileDamaged as error:
                return error

        if len(reads) < 2:
            return [one(each) for each in reads]
        return list(self._pool("days-read", _READERS).map(one, reads))

    def items(self, file: DayFile) -> list[DayItem]:
        """Return what a file has."""
        return list(self._footer(file).rows)

    def _footer(self, file: DayFile) -> DayFooter:
        found: DayFooter | None = self._cached(file.name)
        if found is None:
            found = DayFooter(file, self._read(file, *file.footer_range))
            self._put(file.name, found)
        return found

    def _values(self, footer: DayFooter, group: int, columns: Sequence[str]) -> dict[str, _Column]:
        file, found, missing = footer.file, {}, []
        for name in columns:
            cached: _Column | None = self._cached((file.name, group, name))
            if cached is None:
                missing.append(name)
            else:
                found[name] = cached
        if missing:
            segments = [
                (start, self._read(file, start, end))
                for start, end in footer.ranges(group, missing)
            ]
            for name, values in footer.values(group, missing, segments).items():
                found[name] = _Column(values, 500 + sum(map(_size, values)))
                self._put((file.name, group, name), found[name])
        return found

    def _read(self, file: DayFile, start: int, end: int) -> bytes:
        try:
            found = self._call(lambda: self._files.read(file.name, start, end))
        except FileNotFoundError as error:
            if self.owner() is None:
                raise FilesUnavailable("the place of the files is empty or not mounted") from error
            raise DayFileDamaged(f"the file {file.name} is missing") from error
        if len(found) != end - start:
            raise DayFileDamaged(f"the file {file.name} ends early")
        return found

    def _call(self, work: Callable[[], T]) -> T:
        """Do something with the store of files; whatever it raises, but that a file is missing, is a state of that store."""
        if time.monotonic() - self._failed_at < _REST_S and self._failed_at >= 0:
            raise FilesUnavailable(self._why)
        try:
            found = work()
        except (FileNotFoundError, MemoryError):
            self._failed_at = self._failing_since = -1.0
            raise
        except Exception as error:  # each store of files has errors of its own
            self._why = f"the store of files does not respond: {type(error).__name__}: {error}"[
                :300
            ]
            self._failed_at = time.monotonic()
            if self._failing_since < 0:
                self._failing_since = self._failed_at
                log.warning("cold_files_unavailable error=%s", self._why)
            raise FilesUnavailable(self._why) from error
        self._failed_at = self._failing_since = -1.0
        return found

    def _pool(self, name: str, n_threads: int) -> ThreadPoolExecutor:
        """Return threads of this process: those of one that it was forked from do not exist here."""
        with self._lock:
            pid, pool = self._pools.get(name, (0, None))
            if pool is None or pid != os.getpid():
                pool = ThreadPoolExecutor(n_threads, name)
                self._pools[name] = (os.getpid(), pool)
            return pool

    def _cached(self, key: Any) -> Any:
        with self._lock:
            return self._cache.get(key)

    def _put(self, key: Any, value: Any) -> None:
        with self._lock:
            if value.size <= self._cache.maxsize:
                self._cache[key] = value


def _size(value: Any) -> int:
    if isinstance(value, list):
        return 100 + sum(len(each) + 150 for pair in value for each in pair)
    return 50 + (len(value) if value else 0)


_opened: dict[tuple[str, int], ColdFiles] = {}


def cold_files(settings: EngineSettings) -> ColdFiles | None:
    """Return the files of cold days; None without the setting. One object, and one cache, of each place and process.

    Raises
    ------
    SettingsError
        A package is missing.
    """
    url = settings.cold_url
    if url is None:
        return None
    if find_spec("pyarrow") is None:
        raise SettingsError(f"CALIBRANT_COLD_URL: pyarrow is not installed: {pip_install('cold')}")
    if "://" in url and not url.startswith("file://") and find_spec("fsspec") is None:
        raise SettingsError(
            f"CALIBRANT_COLD_URL: fsspec is not installed: {pip_install('cold-s3')}"
        )
    if url.startswith(("s3://", "s3a://")) and find_spec("s3fs") is None:
        raise SettingsError(f"CALIBRANT_COLD_URL: s3fs is not installed: {pip_install('cold-s3')}")
    key = (url, settings.cold_cache_bytes)
    if key not in _opened:
        _opened[key] = ColdFiles(file_store(url), settings.cold_cache_bytes)
    return _opened[key]
