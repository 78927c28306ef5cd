"""Rows of stored tails.

Every slice of a model, and every set of accumulators, is read with the same rows. Small ones are cached by their packed bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

from calibrant.core.routing import ROWS_TOGETHER
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import read_rows
from calibrant_server.workers.queries.window_state import LoadedPane
from calibrant_server.workers.store.lru_cache import LruCache


class CachedRows(NamedTuple):
    """Unpacked rows of a tail, with its name."""

    name: tuple[str, bytes]
    rows: Any

    def size_of(self) -> int:
        """Return the bytes that they count for in a cache."""
        return 4000 + LoadedPane.row_bytes(self.rows)


# Where the cache has the large tail that was read last: the queries of a report read the newest pane one after the other.
_LARGE = ("large rows",)


class RowReader:
    """Reader of the rows of tails; several threads may share one object.

    Parameters
    ----------
    cache : of rows and of whatever else has a `size_of`
    """

    def __init__(self, numerics: Numerics, cache: LruCache[Any, Any]):
        self._numerics = numerics
        self._cached = cache

    def read(self, tail: dict[bytes, bytes]) -> Any:
        """Return the rows of a stored tail, which must not be changed; None if there are none.

        Raises
        ------
        PackingError
            The rows are damaged.
        """
        if not tail:
            return None
        name = _name(tail)
        places: tuple[Any, ...] = (name, _LARGE)
        for place in places:
            cached: CachedRows | None = self._cached.get(place)
            if cached is not None and cached.name == name:
                return cached.rows
        rows = read_rows(self._numerics, tail)
        if rows is not None:
            # Of many rows only the last are kept: a pane that grows would displace all others.
            place = name if len(rows) < ROWS_TOGETHER else _LARGE
            self._cached.put(place, CachedRows(name, rows))
        return rows


def _name(tail: dict[bytes, bytes]) -> tuple[str, bytes]:
    """Return the name of a tail's rows in the cache."""
    digest = blake2b(digest_size=16)
    for piece in sorted(tail):
        digest.update(b"%d %d " % (len(piece), len(tail[piece])) + piece + tail[piece])
    return "rows", digest.digest()
