"""Files of old days: the stored hashes of a model's panes and samples, with the bytes that the store had.

A file begins with a head: the place and the digest of each item. The items follow. A query reads the head and the items that it needs,
through a bounded cache; files never change. A read is checked: the head by the digest that the store has of it, an item by that in the head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from struct import iter_unpack, pack
from typing import Any, NamedTuple

from calibrant.core.extras import pip_install
from calibrant.core.packing import PackingError
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.file_store import FileStore
from calibrant_server.workers.store.lru_cache import LruCache

PANE, EVENT, SEALED = "pane", "event", "sealed"

Fields = dict[bytes, bytes]
# Of an item in a file: first byte, end, digest.
Place = tuple[int, int, str]


class DayItem(NamedTuple):
    """Something stored of a day: the pane of a slice, or the sample of predictions or of sealed cohorts."""

    kind: str
    slice: str
    start_s: int


class DayFileDamaged(PackingError):
    """A file of a cold day is missing, or has other bytes than were written."""


@dataclass(frozen=True)
class DayFile:
    """A file as the store knows it: its name, and size and digest of its head."""

    name: str
    head_bytes: int
    digest: str

    @property
    def folder(self) -> str:
        """The folder that has all files of one move."""
        return self.name.rpartition("/")[0]


def packed_day(name: str, items: Mapping[DayItem, bytes]) -> tuple[DayFile, bytes]:
    """Return a file of items with their packed fields, as the store is to know it, and its bytes."""
    places, at = [], 0
    for item, data in items.items():
        places.append([*item, at, at + len(data), _digest(data)])
        at += len(data)
    head = json.dumps(places, separators=(",", ":")).encode()
    return DayFile(name, len(head), _digest(head)), b"".join([head, *items.values()])


def packed_fields(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the fields of a hash as bytes: their number and lengths, then names and values.

    >>> unpacked_fields(packed_fields({b"counts": b"12", b"h": b""}))
    {b'counts': b'12', b'h': b''}
    """
    parts = [part for pair in fields.items() for part in pair]
    return pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)) + b"".join(parts)


def unpacked_fields(data: bytes) -> Fields:
    """Return the fields of a hash."""
    at = 4 + 4 * int.from_bytes(data[:4], "little")
    parts = []
    for (length,) in iter_unpack("<I", data[4:at]):
        parts.append(data[at : at + length])
        at += length
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


class DayFiles:
    """The files of a store's cold days; several threads may share one object.

    Parameters
    ----------
    place : where they are
    cache_bytes : bound of what was read and is cached
    """

    def __init__(self, place: FileStore, cache_bytes: int):
        self.place = place
        self._cache: LruCache[Any, tuple[Any, int]] = LruCache(cache_bytes, lambda each: each[1])

    def items(self, file: DayFile) -> dict[DayItem, Place]:
        """Return what a file has, and where."""
        cached = self._cache.get(file.name)
        if cached is None:
            data = self._read(file.name, 0, file.head_bytes, file.digest)
            items = {DayItem(*each[:3]): tuple(each[3:]) for each in json.loads(data)}
            cached = self._cache.put(file.name, (items, 1000 + 6 * len(data)))
        found: dict[DayItem, Place] = cached[0]
        return found

    def read(self, files: Sequence[DayFile], item: DayItem) -> Fields | PackingError | None:
        """Return the fields of an item, None if it is in none of the files, or the damage.

        Raises
        ------
        FilesUnavailable
            The store of files does not respond.
        """
        try:
            for file in files:
                place = self.items(file).get(item)
                if place is not None:
                    return self._fields(file, item, place)
        except DayFileDamaged as error:
            return error
        return None

    def _fields(self, file: DayFile, item: DayItem, place: Place) -> Fields:
        cached = self._cache.get((file.name, item))
        if cached is None:
            start, end, digest = place
            data = self._read(file.name, file.head_bytes + start, file.head_bytes + end, digest)
            fields = unpacked_fields(data)
            size = 500 + len(data) + 150 * len(fields)
            cached = self._cache.put((file.name, item), (fields, size))
        found: Fields = cached[0]
        return found

    def _read(self, name: str, start: int, end: int, digest: str) -> bytes:
        try:
            found = self.place.get(name, start, end)
        except FileNotFoundError as error:
            raise DayFileDamaged(f"the file {name} is missing") from error
        if _digest(found) != digest:
            raise DayFileDamaged(f"the file {name} is damaged at byte {start}")
        return found


_opened: dict[tuple[str, int], DayFiles] = {}


def day_files(settings: EngineSettings) -> DayFiles | None:
    """Return the files of cold days; None without the setting. One object, and one cache, of each place and process.

    Raises
    ------
    SettingsError
        A package is missing.
    """
    url = settings.cold_url
    if url is None:
        return None
    is_s3 = url.startswith(("s3://", "s3a://"))
    needed = ["fsspec", *["s3fs"] * is_s3] if "://" in url and url[:7] != "file://" else []
    for package in needed:
        if find_spec(package) is None:
            raise SettingsError(
                f"CALIBRANT_COLD_URL: {package} is not installed: {pip_install('cold-s3')}"
            )
    key = (url, settings.cold_cache_bytes)
    if key not in _opened:
        _opened[key] = DayFiles(FileStore(url), settings.cold_cache_bytes)
    return _opened[key]
