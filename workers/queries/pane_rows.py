"""Rows of stored tails.

Every slice of a model, and every set of accumulators, is read with the same rows. Small ones are cached by their packed bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

from calibrant.core.routing import ROWS_TOGETHER
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import read_rows
from calibrant_server.workers.queries.window_state import LoadedPane, LruCache


class CachedRows(NamedTuple):
    """Unpacked rows of a tail."""

    rows: Any

    def size_of(self) -> int:
        """Return the bytes that they count for in a cache."""
        return 4000 + LoadedPane.row_bytes(self.rows)


class LargeRows(NamedTuple):
    """Rows of a large tail, with the name of the tail."""

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
        cached: CachedRows | None = self._cached.get(name)
        if cached is not None:
            return cached.rows
        large: LargeRows | None = self._cached.get(_LARGE)
        if large is not None and large.name == name:
            return large.rows
        rows = read_rows(self._numerics, tail)
        # Of many rows only the last are kept: a pane that grows would displace all others.
        if rows is not None and len(rows) < ROWS_TOGETHER:
            self._cached.put(name, CachedRows(rows))
        elif rows is not None:
            self._cached.put(_LARGE, LargeRows(name, rows))
        return rows


def _name(tail: dict[bytes, bytes]) -> tuple[str, bytes]:
    """Return the name of a tail's rows in the cache."""
    digest = blake2b(digest_size=16)
    for piece in sorted(tail):
        digest.update(b"%d %d " % (len(piece), len(tail[piece])) + piece + tail[piece])
    return "rows", digest.digest()
