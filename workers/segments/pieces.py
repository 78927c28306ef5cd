"""Packed rows of a time slice or a sample, in pieces: each in a field of its own of a hash of the store.

Pieces are appended by commits and merged like the runs of a log-structured tree: a commit rewrites the last pieces while
they are small, and larger ones when there are several of about the same size. So there are few pieces, and a row is seldom rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import takewhile
from sys import getsizeof
from typing import Any

from calibrant_server.workers.store.commit import Commit

# Pieces below this size are always merged with the rows that come next.
SMALL_PIECE_BYTES = 8 << 10
# So many larger pieces of about the same size become one.
MERGED_PIECES = 16


def sorted_pieces(fields: Mapping[bytes, bytes]) -> list[tuple[int, bytes]]:
    """Return the pieces among the fields of a hash, oldest first."""
    return sorted((int(name), data) for name, data in fields.items() if name.isdigit())


class Pieces:
    """Pieces as they will be stored, and a total over their rows.

    Parameters
    ----------
    rows : class of the rows (`calibrant_server.workers.segments.rows.Rows`)
    reduced : the rows to store instead of rows that are merged
    measure : numbers of rows that add up in `total`
    """

    def __init__(
        self,
        rows: Any,
        reduced: Callable[[Any], Any],
        measure: Callable[[Any], Mapping[str, int]],
        fields: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.rows = rows
        self._reduced, self._measure = reduced, measure
        self.data = dict(sorted_pieces(fields or {}))
        self._stored = dict(self.data)
        self.total: Counter[str] = Counter()
        if self.data:
            self.total.update(measure(self.all_rows()))

    @property
    def n_bytes(self) -> int:
        """Packed bytes."""
        return sum(map(len, self.data.values()))

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory."""
        names = sum(getsizeof(name) + 100 for name in self.total)
        return 1000 + names + sum(getsizeof(data) + 300 for data in self.data.values())

    def all_rows(self) -> Any:
        """Return the rows of all pieces, in the order of their commits; None without any."""
        return self.rows.unpack_pieces(self._oldest_first()) if self.data else None

    def append(self, added: Any) -> None:
        """Append rows, merging them with the last pieces while those are small, or several of them are alike."""
        self.total.update(self._measure(added))
        merged, name = added, max(self.data, default=-1) + 1
        if self.data and len(self.data[name - 1]) <= SMALL_PIECE_BYTES:
            name -= 1
            merged = self.rows.together([self.rows.unpack(self.data.pop(name)), merged])
        # Rows that take others away are packed once, with the pieces in which they may cancel.
        packed, n_bytes = None, 0 if merged.only_adds else merged.least_bytes
        while (alike := self._alike(n_bytes, merged.only_adds)) or packed is None:
            if alike:
                name = alike[0]
                last = self.rows.unpack_pieces([self.data.pop(each) for each in alike])
                merged = self.rows.together([last, merged])
            merged = self._of_merged(merged)
            packed = merged.pack()
            n_bytes = len(packed)
        if len(merged):
            self.data[name] = packed

    def replace(self, rows: Any) -> None:
        """Store other rows in place of all."""
        self.data, self.total = {}, Counter(self._measure(rows))
        if len(rows):
            self.data[0] = rows.pack()

    def clear(self) -> None:
        """Drop all rows."""
        self.data, self.total = {}, Counter()

    def write(self, key: str, commit: Commit) -> None:
        """Write the changes into a commit."""
        changed = {
            str(name): data
            for name, data in sorted(self.data.items())
            if self._stored.get(name) is not data
        }
        gone = [str(name) for name in sorted(self._stored.keys() - self.data.keys())]
        if changed:
            commit.set_fields(key, changed)
        if gone:
            commit.drop_fields(key, gone)
        self._stored = dict(self.data)

    def _of_merged(self, merged: Any) -> Any:
        left = self._reduced(merged)
        if left is not merged:
            self.total.subtract(self._measure(merged))
            self.total.update(self._measure(left))
        return left

    def _alike(self, n_bytes: int, only_adds: bool) -> list[int]:
        """Return the last pieces that become one with rows of so many packed bytes, oldest first."""
        alike = list(
            takewhile(
                lambda name: len(self.data[name]) <= 2 * n_bytes, sorted(self.data, reverse=True)
            )
        )
        # Rows that take others away may cancel with them.
        enough = MERGED_PIECES - 1 if only_adds else 1
        return alike[::-1] if len(alike) >= enough else []

    def _oldest_first(self) -> list[bytes]:
        return [self.data[name] for name in sorted(self.data)]
