"""What a run changes: panes with the running totals of their sources, and tails, whose rows are not sums yet."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from sys import getsizeof
from typing import TYPE_CHECKING

from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.ingest.stored_panes import divided
from calibrant_server.workers.store.batch_records import RowError
from calibrant_server.workers.store.key_names import SOURCE_FIELD, PaneKey
from calibrant_server.workers.store.windows import Window, rfc3339

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.posted_sums import Claim
    from calibrant_server.workers.ingest.reduce import Numerics
from collections.abc import Mapping
from math import log10
from operator import attrgetter
from typing import Any

import numpy as np

from calibrant.core.hashing import U64
from calibrant_server.workers.segments.pieces import Pieces

REPLACED, DUPLICATE, STALE, CONFLICT = "replaced", "duplicate", "stale", "conflict"
_TOTALS = struct.Struct("<q16s")
_CONFLICT = "a running total of this source, epoch and sequence arrived before with other content; the first is stored"


class UnreadablePane(RuntimeError):
    """The state of a pane or tail is damaged: entries for it are parked, and the state is not changed."""

    def __init__(self, key: PaneKey, error: Exception):
        at = rfc3339(Window(key.start_s, key.start_s).from_at)
        name = f" of slice {key.slice!r}" if key.slice else ""
        super().__init__(f"the pane {at}{name} cannot be read: {error}")
        self.key = key


@dataclass
class CachedPane:
    """A pane, its parts as stored, and the running totals of its sources."""

    pane: Pane
    parts: dict[str, bytes] = field(default_factory=dict)
    sources: dict[str, bytes] = field(default_factory=dict)
    changed_sources: set[str] = field(default_factory=set)

    @classmethod
    def read(
        cls, key: PaneKey, fields: dict[bytes, bytes], spec: PaneSpec, numerics: Numerics
    ) -> CachedPane:
        """Return the pane of stored fields; raise UnreadablePane."""
        parts, sources = divided(fields)
        try:
            pane = numerics.of_parts(spec, parts)
        except PackingError as error:
            raise UnreadablePane(key, error) from error
        return cls(pane, parts, sources)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory: the pane, its parts as packed, and the running totals."""
        packed = (*self.parts.items(), *self.sources.items())
        return int(self.pane.memory_bytes) + sum(
            getsizeof(name) + getsizeof(value) for name, value in packed
        )

    def replace_total(self, name: str, claim: Claim, numerics: Numerics) -> str:
        """Replace the earlier running total of a source by a newer one; return the outcome.

        The new totals are added before the old ones are subtracted, so that no cell passes through a count of zero,
        at which its sums would be dropped.
        """
        update = claim.update
        digest = blake2b(update.packed, digest_size=16).digest()
        sequence = int(update.sequence or 0)
        earlier = self.sources.get(name)
        if earlier is not None:
            last_sequence, last_digest = _TOTALS.unpack_from(earlier)
            if sequence < last_sequence:
                return STALE
            if sequence == last_sequence:
                return DUPLICATE if digest == last_digest else CONFLICT
        self._replace(
            update.packed, None if earlier is None else earlier[_TOTALS.size :], claim, numerics
        )
        self.sources[name] = _TOTALS.pack(sequence, digest) + update.packed
        self.changed_sources.add(name)
        return REPLACED

    def _replace(
        self, packed: bytes, earlier: bytes | None, claim: Claim, numerics: Numerics
    ) -> None:
        """Add a total to the sums, and subtract the one that it replaces."""
        if claim.is_pane:
            self.pane.merge(numerics.pane.unpack(packed))
            if earlier is not None:
                self.pane.subtract(numerics.pane.unpack(earlier))
            return
        self.pane.fill_histogram(numerics.histogram.unpack(packed))
        if earlier is not None:
            self.pane.fill_histogram(numerics.histogram.unpack(earlier).negated())


def conflict_errors(claims: Iterable[tuple[str, str]]) -> list[RowError]:
    """Return a violation per running total whose sequence came before with other content."""
    pointers = dict.fromkeys(at for at, result in claims if result == CONFLICT)
    return [
        {"pointer": f"{at}/sequence", "rule": "sequence_conflict", "detail": _CONFLICT}
        for at in pointers
    ]


def total_field(name: str, start_s: int | None = None) -> str:
    """Return the field of a running total; in a daily pane it includes the start of the original pane."""
    return SOURCE_FIELD + (name if start_s is None else f"{start_s}@{name}")


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
