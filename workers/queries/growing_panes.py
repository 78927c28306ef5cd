"""Panes that grow: what the next read of a pane can use of the last one.

The newest pane of a window gets rows all the time, and every query of the window reads it again. Its sums and the first pieces of its
tail stay the same for many commits. They are kept as one pane, together with the bytes that it was made of. The next read
compares these bytes with those in the store, and fills only the other pieces.

A pane is kept when it is read for the second time: most panes of a window are read once, and merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import sums_and_rows
from calibrant_server.workers.ingest.tail_cache import sorted_pieces
from calibrant_server.workers.queries.pane_rows import RowReader
from calibrant_server.workers.queries.window_state import LruCache, WindowPlace
from calibrant_server.workers.store.slice_names import is_live

_OVERHEAD_BYTES = 1000
# A commit rewrites the last pieces while they are small: together they are not larger than this for long.
_MAX_REST_BYTES = 32 << 10


@dataclass(frozen=True)
class _Base:
    """Sums of a stored pane together with the first pieces of its tail.

    Attributes
    ----------
    lengths, piece_lengths : of the bytes that it is made of
    parts, pieces : these bytes; none until it was read twice
    pane : None until it was read twice
    """

    lengths: tuple[int, ...]
    piece_lengths: tuple[int, ...]
    parts: Mapping[str, bytes] = field(default_factory=dict)
    pieces: Mapping[bytes, bytes] = field(default_factory=dict)
    pane: Any = None

    def size_of(self) -> int:
        """Return the bytes that it counts for in a cache."""
        if self.pane is None:
            return _OVERHEAD_BYTES
        return (
            _OVERHEAD_BYTES
            + sum((*self.lengths, *self.piece_lengths))
            + int(self.pane.memory_bytes)
        )

    def looks_like_start_of(self, lengths: tuple[int, ...], piece_lengths: tuple[int, ...]) -> bool:
        """Whether it was noted for a pane whose sums and first pieces have these lengths, and is not made yet."""
        return (
            self.pane is None
            and self.lengths == lengths
            and self.piece_lengths == piece_lengths[: len(self.piece_lengths)]
            and bool(self.lengths or self.piece_lengths)
        )

    def is_start_of(self, parts: Mapping[str, bytes], tail: Mapping[bytes, bytes]) -> bool:
        """Whether it is made of exactly these sums and of pieces of this tail."""
        same = self.pane is not None and self.parts == parts
        return same and all(tail.get(name) == data for name, data in self.pieces.items())


class GrowingPanes:
    """Cache of the constant parts of panes that grow; several threads may share one object.

    Parameters
    ----------
    cached : of these and of whatever else has a `size_of`
    """

    def __init__(self, numerics: Numerics, rows: RowReader, cached: LruCache[Any, Any]) -> None:
        self._numerics = numerics
        self._rows = rows
        self._cached = cached

    def read(
        self, place: WindowPlace, start: int, parts: Mapping[str, bytes], tail: dict[bytes, bytes]
    ) -> tuple[Any, Any] | None:
        """Return a cached pane, which must not be changed, and the rows to be filled into a copy of it; None if there is none.

        Raises
        ------
        PackingError
            The sums or the rows are damaged.
        """
        if place.wanted is None or not tail or not is_live(place.slice):
            return None
        if len(tail) == 1 and not parts:
            return None  # neither sums nor pieces stay
        name = ("base", *place.name, start)
        known: _Base | None = self._cached.get(name)
        if known is not None and known.is_start_of(parts, tail):
            rest = {each: data for each, data in tail.items() if each not in known.pieces}
            if len(rest) == 1 or 0 < sum(map(len, rest.values())) <= _MAX_REST_BYTES:
                return self._with_rows(known.pane, rest)
        pieces = [(b"%d" % name, data) for name, data in sorted_pieces(tail)]
        lengths = tuple(map(len, parts.values()))
        piece_lengths = tuple(len(data) for _, data in pieces[:-1])
        if known is None or not known.looks_like_start_of(lengths, piece_lengths):
            self._cached.put(name, _Base(lengths, piece_lengths))
            return None
        n = len(known.piece_lengths)
        first, rest = dict(pieces[:n]), dict(pieces[n:])
        pane = self._made(place, parts, first)
        if pane is None:
            return None
        self._cached.put(name, _Base(lengths, known.piece_lengths, parts, first, pane))
        return self._with_rows(pane, rest)

    def _with_rows(self, pane: Any, pieces: dict[bytes, bytes]) -> tuple[Any, Any] | None:
        rows = self._rows.read(pieces)
        return (pane, rows) if rows.only_adds else None

    def _made(
        self, place: WindowPlace, parts: Mapping[str, bytes], pieces: dict[bytes, bytes]
    ) -> Any:
        """Return sums and pieces as one pane; None where rows were taken away, which may be in other pieces."""
        config = place.config
        pane, rows = sums_and_rows(
            self._numerics, config, place.slice, parts, pieces, place.wanted, self._rows.read
        )
        if rows is None:
            return pane.compact()
        if not rows.only_adds:
            return None
        spec = self._numerics.spec(config)
        rows.fill_into(pane, place.slice, lambda: self._numerics.of_parts(spec, {}, place.wanted))
        return pane.compact()
