"""Cached tail of a time slice: rows that are not sums yet, and the size from which they become sums."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from operator import attrgetter
from typing import Any

import numpy as np

from calibrant.core.hashing import U64
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.segments.pieces import Pieces

MAX_TAIL_BYTES = 4 << 20
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


class CachedTail(Pieces):
    """The pieces of a tail. A row and its removal cancel where they are merged.

    Attributes
    ----------
    next_part : number of the next batch
    """

    def __init__(self, rows: Any, fields: Mapping[bytes, bytes] | None = None) -> None:
        """Read a tail as it is stored.

        Raises
        ------
        PackingError
            A piece is damaged.
        """
        self.next_part = 0
        super().__init__(rows, attrgetter("net"), self._counted, fields)

    def _counted(self, rows: Any) -> Mapping[str, int]:
        self.next_part = max(self.next_part, int(rows.part.max(initial=-1)) + 1)
        counted: Mapping[str, int] = rows.n_by_slice
        return counted

    def n_by_slice(self, more: Mapping[str, int]) -> dict[str, int]:
        """Return the rows of either sign by slice, together with `more`."""
        return {
            name: n + more.get(name, 0) for name, n in (dict.fromkeys(more, 0) | self.total).items()
        }

    def still_has(self, hashes: U64) -> bool:
        """Cancel rows of all pieces, where one has rows of these predictions; return whether any of them remains."""
        rows = self.all_rows()
        if rows is None or not np.isin(rows.hashes, hashes).any():
            return False
        self.replace(rows.net)
        return bool(np.isin(rows.net.hashes, hashes).any())

    def clear(self) -> None:
        """Drop all rows: they are in the sums."""
        super().clear()
        self.next_part = 0
