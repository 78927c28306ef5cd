"""Cached tail of a time slice: packed pieces of rows that are not sums yet, and the size from which they become sums.

Pieces are appended by commits and merged like the runs of a log-structured tree: a commit rewrites the last pieces while
they are small, and larger ones when there are several of about the same size. So a tail has few pieces, and a row is seldom rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import log10
from sys import getsizeof
from typing import Any

import numpy as np

from calibrant.core.hashing import U64
from calibrant.core.routing import ALL_ROWS
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.store.commit import Commit

MAX_TAIL_BYTES = 4 << 20
# Pieces below this size are always merged with the rows that come next.
SMALL_PIECE_BYTES = 8 << 10
# So many larger pieces of about the same size become one.
MERGED_PIECES = 16
# Fewer rows are kept unpacked by the tails only that changed last: in many tails they take more memory than they save time.
MIN_UNPACKED_ROWS = 256
# Packed bytes of a pane by the decimal logarithm of its rows, measured (docs/state.md, "Rows while small").
_LOG_ROWS = (0, 1, 2, 3, 4, 5)
_PANE_BYTES = (9_000, 15_000, 48_000, 150_000, 300_000, 390_000)
_MANY_CLASSES_BYTES = (9_000, 17_000, 44_000, 55_000, 65_000, 80_000)
_MANY_CLASSES = 64


def estimated_pane_bytes(spec: PaneSpec, n_rows: int) -> int:
    """Return about how many bytes a pane takes packed.

    >>> estimated_pane_bytes(PaneSpec("multiclass", 10), 1)
    9000
    """
    sizes = _PANE_BYTES if spec.n_classes <= _MANY_CLASSES else _MANY_CLASSES_BYTES
    return int(np.interp(log10(max(n_rows, 1)), _LOG_ROWS, sizes))


@dataclass(frozen=True)
class TailPiece:
    """Packed rows, and their number in each slice; all rows are `""`.

    Attributes
    ----------
    unpacked : the same rows, if they were packed lately
    """

    data: bytes
    n_by_slice: dict[str, int]
    unpacked: Any = None

    @classmethod
    def of(cls, rows: Any, data: bytes | None = None) -> TailPiece:
        """Return rows as a piece; `data` are its bytes, if they are known."""
        return cls(rows.pack() if data is None else data, rows.n_by_slice)

    @classmethod
    def of_new(cls, rows: Any) -> TailPiece:
        """Return rows that were not packed before as a piece, which has them unpacked too."""
        return cls(rows.pack(), rows.n_by_slice, rows)

    def rows(self, kind: Any) -> Any:
        """Return the rows."""
        return kind.unpack(self.data) if self.unpacked is None else self.unpacked

    @property
    def n_rows(self) -> int:
        return self.n_by_slice[ALL_ROWS]


@dataclass
class CachedTail:
    """The pieces of a tail by the field that stores each, oldest first.

    Attributes
    ----------
    rows : class of the rows (`calibrant_server.workers.segments.rows.Rows`)
    next_part : number of the next batch
    """

    rows: Any
    pieces: dict[int, TailPiece] = field(default_factory=dict)
    next_part: int = 0
    _stored: dict[int, TailPiece] = field(default_factory=dict)

    @classmethod
    def read(cls, rows: Any, fields: dict[bytes, bytes]) -> CachedTail:
        """Return a tail as it is stored.

        Raises
        ------
        PackingError
            A piece is damaged.
        """
        tail = cls(rows)
        for name, data in sorted_pieces(fields):
            piece = rows.unpack(data)
            tail.pieces[name] = TailPiece.of(piece, data)
            tail.next_part = max(tail.next_part, int(piece.part.max()) + 1)
        tail._stored = dict(tail.pieces)
        return tail

    @property
    def n_bytes(self) -> int:
        """Packed bytes."""
        return sum(len(piece.data) for piece in self.pieces.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory, without the rows that are also unpacked."""
        return 1000 + sum(
            getsizeof(piece.data) + 500 + sum(getsizeof(name) + 100 for name in piece.n_by_slice)
            for piece in self.pieces.values()
        )

    @property
    def unpacked_bytes(self) -> int:
        """Bytes in memory of the rows that are also unpacked."""
        unpacked = [piece.unpacked for piece in self.pieces.values()]
        return sum(rows.memory_bytes for rows in unpacked if rows is not None)

    @property
    def has_few_unpacked(self) -> bool:
        """Whether a piece of few rows has them unpacked."""
        return any(map(_has_few_unpacked, self.pieces.values()))

    def drop_few_unpacked(self) -> None:
        """Keep the packed rows alone of pieces of few rows."""
        self._drop_unpacked(_has_few_unpacked)

    def drop_unpacked(self) -> None:
        """Keep the packed rows alone."""
        self._drop_unpacked(lambda piece: piece.unpacked is not None)

    def _drop_unpacked(self, of: Callable[[TailPiece], bool]) -> None:
        packed = {
            name: replace(piece, unpacked=None) if of(piece) else piece
            for name, piece in self.pieces.items()
        }
        for name, piece in self._stored.items():
            if self.pieces.get(name) is piece:
                self._stored[name] = packed[name]
        self.pieces = packed

    def n_by_slice(self, more: Mapping[str, int]) -> dict[str, int]:
        """Return the rows of either sign by slice, together with `more`."""
        found = dict(more)
        for piece in self.pieces.values():
            for slice_, n in piece.n_by_slice.items():
                found[slice_] = found.get(slice_, 0) + n
        return found

    def append(self, added: Any) -> None:
        """Append rows, merging them with the last pieces while those are small, or several of them are alike."""
        self.next_part = max(self.next_part, int(added.part.max()) + 1)
        merged, name = added, max(self.pieces, default=-1) + 1
        while last := self._next_to_merge(merged):
            pieces = [self.pieces[each].rows(self.rows) for each in last]
            merged, name = self.rows.together([*pieces, merged]), last[0]
            for each in last:
                del self.pieces[each]
        merged = merged.net
        if len(merged):
            self.pieces[name] = TailPiece.of_new(merged)

    def _next_to_merge(self, merged: Any) -> list[int]:
        """Return the last pieces that become one with rows that are added, oldest first."""
        names = sorted(self.pieces)
        if names and len(self.pieces[names[-1]].data) <= SMALL_PIECE_BYTES:
            return names[-1:]
        alike = list(
            takewhile(lambda name: self.pieces[name].n_rows <= 2 * len(merged), reversed(names))
        )
        # Rows that take others away may cancel with them.
        enough = MERGED_PIECES - 1 if merged.only_adds else 1
        return alike[::-1] if len(alike) >= enough else []

    def all_rows(self) -> Any:
        """Return the rows of all pieces; None without any."""
        pieces = [self.pieces[name].rows(self.rows) for name in sorted(self.pieces)]
        return self.rows.together(pieces) if pieces else None

    def still_has(self, hashes: U64) -> bool:
        """Cancel rows of all pieces, where one has rows of these predictions; return whether any of them remains."""
        rows = self.all_rows()
        if rows is None or not np.isin(rows.hashes, hashes).any():
            return False
        left = rows.net
        self.pieces = {0: TailPiece.of(left)} if len(left) else {}
        return bool(np.isin(left.hashes, hashes).any())

    def clear(self) -> None:
        """Drop all rows: they are in the sums."""
        self.pieces, self.next_part = {}, 0

    def write(self, key: str, commit: Commit) -> None:
        """Write the changes into a commit."""
        changed = {
            str(name): piece.data
            for name, piece in sorted(self.pieces.items())
            if self._stored.get(name) is not piece
        }
        gone = [str(name) for name in sorted(self._stored.keys() - self.pieces.keys())]
        if changed:
            commit.set_fields(key, changed)
        if gone:
            commit.drop_fields(key, gone)
        self._stored = dict(self.pieces)


def _has_few_unpacked(piece: TailPiece) -> bool:
    return piece.unpacked is not None and piece.n_rows < MIN_UNPACKED_ROWS


def sorted_pieces(fields: dict[bytes, bytes]) -> list[tuple[int, bytes]]:
    """Return the pieces of a stored tail, oldest first."""
    return sorted((int(name), data) for name, data in fields.items())
