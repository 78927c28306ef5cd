"""Files of old days: one for each slice of a day, with the stored hashes of its panes, and of the samples with that of all rows.

A file is read as a whole and never changes. It begins with a digest of its name and its content; a bounded cache has what was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from importlib.util import find_spec
from struct import iter_unpack, pack
from typing import NamedTuple

from calibrant.core.extras import pip_install
from calibrant.core.packing import PackingError
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.file_store import FileStore
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.lru_cache import LruCache
from calibrant_server.workers.store.slice_names import plain_slice

PANE, EVENT, SEALED = "pane", "event", "sealed"
_DIGEST_BYTES = 16

Fields = dict[bytes, bytes]


class DayItem(NamedTuple):
    """Something stored of a day: the pane of a slice, or the sample of predictions or of sealed cohorts."""

    kind: str
    slice: str
    start_s: int

    @property
    def of_slice(self) -> str:
        """The slice whose file has it: sealed cohorts are with the slice that was sealed."""
        return plain_slice(self.slice)


Items = dict[DayItem, Fields]


def pane_item(key: PaneKey) -> DayItem:
    """Return a pane as part of its day."""
    return DayItem(PANE, key.slice, key.start_s)


def sample_item(day_s: int, sealed: bool) -> DayItem:
    """Return a stored sample as part of its day."""
    return DayItem(SEALED if sealed else EVENT, "", day_s)


class DayFileDamaged(PackingError):
    """A file of a cold day is missing, or has other bytes than were written."""


def packed_items(name: str, items: Mapping[DayItem, Fields]) -> bytes:
    """Return the bytes of a file."""
    stored = {json.dumps(item).encode(): packed_fields(fields) for item, fields in items.items()}
    data = packed_fields(stored)
    return _digest(name, data) + data


def unpacked_items(name: str, data: bytes) -> Items:
    """Return what a file has; raise DayFileDamaged where the bytes are others than were written."""
    if data[:_DIGEST_BYTES] != _digest(name, data[_DIGEST_BYTES:]):
        raise DayFileDamaged(f"the file {name} is damaged")
    stored = unpacked_fields(data[_DIGEST_BYTES:])
    return {DayItem(*json.loads(item)): unpacked_fields(each) for item, each in stored.items()}


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


def _digest(name: str, data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES, key=name.encode()[-64:]).digest()


class DayFiles:
    """The files of a store's cold days; several threads may share one object.

    Parameters
    ----------
    place : where they are
    cache_bytes : bound of what was read and is cached
    keep_s : how long a file stays that no day names any more
    """

    def __init__(self, place: FileStore, cache_bytes: int, keep_s: float):
        self.place = place
        self.keep_s = keep_s
        self._cache: LruCache[str, tuple[Items, int]] = LruCache(cache_bytes, lambda each: each[1])

    def write(self, name: str, items: Mapping[DayItem, Fields]) -> None:
        """Write a file; raise FilesUnavailable."""
        self.place.put(name, packed_items(name, items))

    def read(self, name: str) -> Items | DayFileDamaged:
        """Return what a file has, or the damage.

        Raises
        ------
        FilesUnavailable
            The store of files does not respond.
        """
        cached = self._cache.get(name)
        if cached is not None:
            return cached[0]
        try:
            data = self.place.get(name)
            items = unpacked_items(name, data)
        except FileNotFoundError:
            return DayFileDamaged(f"the file {name} is missing")
        except DayFileDamaged as error:
            return error
        n_fields = sum(map(len, items.values()))
        return self._cache.put(name, (items, 1000 + len(data) + 150 * n_fields))[0]


_opened: dict[tuple[str, int, float], DayFiles] = {}


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
    key = (url, settings.cold_cache_bytes, settings.cold_keep_s)
    if key not in _opened:
        _opened[key] = DayFiles(FileStore(url), *key[1:])
    return _opened[key]
