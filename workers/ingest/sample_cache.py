"""Stored samples of a partition's models and days, as the last commit left them.

A sample consists of packed pieces, in the order of commits. Rows are added where they leave the tail of their time slice, in
the commit that makes them sums: until then the tail's rows below the threshold are part of the sample. Where the rows exceed
the bound, all pieces become one and the threshold is halved until it fits. It never rises. The labelled predictions of a
model's cohorts at their seal are a second sample of the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from sys import getsizeof
from typing import Any, NamedTuple

from calibrant.core.hashing import U64
from calibrant.core.packing import PackingError
from calibrant.core.sampled_rows import MAX_HALVINGS
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import (
    below_threshold,
    counted,
    occurring,
    row_bytes,
    without,
)
from calibrant_server.workers.store.cold_days import ColdDays, sample_item
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.day_file import DayItem
from calibrant_server.workers.store.keys import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.slice_names import is_live, is_sealed
from calibrant_server.workers.store.watermarks import day_of

# Field of a stored sample that has its threshold.
HALVINGS = "h"
# Pieces below this size are always merged with the rows that come next, and all of them where they are too many.
SMALL_PIECE_BYTES = 8 << 10
MAX_PIECES = 64

# Order in which panes are written.
pane_order = attrgetter("model", "generation", "slice", "start_s")


class SampleKey(NamedTuple):
    """Identity of a stored sample: a model's generation, the start of a day, and whether it is that of sealed cohorts."""

    model: str
    generation: str
    day_s: int
    sealed: bool = False

    @classmethod
    def of(cls, key: PaneKey) -> SampleKey:
        """Return the sample to which the rows of a pane belong."""
        return cls(key.model, key.generation, day_of(key.start_s), is_sealed(key.slice))

    @property
    def member(self) -> str:
        """Name in the list of a model's samples."""
        return f"{'sealed' if self.sealed else 'event'}|{self.day_s}"

    @property
    def item(self) -> DayItem:
        """The sample as part of its day."""
        return sample_item(self.day_s, self.sealed)

    @classmethod
    def read(cls, model: str, generation: str, member: str) -> SampleKey:
        """Return the sample of a member of that list."""
        clock, _, day = member.partition("|")
        return cls(model, generation, int(day), clock == "sealed")

    def name(self, keys: PartitionKeys) -> str:
        """Return the name of its hash."""
        return keys.sample(self.model, self.generation, self.member)


def pieces_of(fields: Mapping[bytes, bytes]) -> list[tuple[int, bytes]]:
    """Return the pieces of a stored sample, oldest first."""
    others = (LAST_CHANGE.encode(), HALVINGS.encode())
    return sorted((int(name), data) for name, data in fields.items() if name not in others)


def stored_rows(fields: Mapping[bytes, bytes]) -> Rows | None:
    """Return the rows of a stored sample, not net; None without pieces.

    Raises
    ------
    PackingError
        A piece is damaged.
    """
    pieces = [data for _, data in pieces_of(fields)]
    return Rows.unpack_pieces(pieces) if pieces else None


def halvings_of(fields: Mapping[bytes, bytes]) -> int:
    """Return the threshold of a stored sample."""
    return int(fields.get(HALVINGS.encode(), 0))


@dataclass
class _Piece:
    data: bytes
    n_rows: int
    n_bytes: int
    is_unwritten: bool = True


@dataclass
class CachedSample:
    """The pieces of a sample by the field that stores each.

    Attributes
    ----------
    max_bytes : the bound on its rows
    halvings : how often the threshold was halved
    fell : whether that happened since the last commit
    """

    max_bytes: int
    halvings: int = 0
    fell: bool = False
    changed: bool = False
    pieces: dict[int, _Piece] = field(default_factory=dict)
    _gone: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, fields: Mapping[bytes, bytes], max_bytes: int) -> CachedSample:
        """Return a sample as it is stored.

        Raises
        ------
        PackingError
            A piece is damaged.
        """
        sample = cls(max_bytes, halvings_of(fields))
        for name, data in pieces_of(fields):
            rows = Rows.unpack(data)
            sample.pieces[name] = _Piece(data, len(rows), int(row_bytes(rows).sum()), False)
        return sample

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory."""
        return 500 + sum(getsizeof(piece.data) + 300 for piece in self.pieces.values())

    def add(self, added: Rows, halvings: int = 0) -> None:
        """Add rows, and take their threshold where it is lower."""
        self.fall_to(halvings)
        added = below_threshold(added, self.halvings)
        if not len(added):
            return
        self.changed = True
        merged, name = added, max(self.pieces, default=-1) + 1
        while self.pieces:
            last = max(self.pieces)
            piece = self.pieces[last]
            if len(piece.data) > SMALL_PIECE_BYTES and len(self.pieces) < MAX_PIECES:
                break
            merged, name = Rows.together([self._rows(self._drop(last)), merged]), last
        self._put(name, counted(merged))
        if sum(piece.n_bytes for piece in self.pieces.values()) > self.max_bytes:
            self._reduce_to_bound()

    def unstored(self) -> CachedSample:
        """Return the same sample as one that the store does not have: a change writes all of it."""
        for piece in self.pieces.values():
            piece.is_unwritten = True
        return self

    def without(self, hashes: U64) -> None:
        """Remove the rows of some ids, with every trace of them."""
        rows = self.all_rows()
        left = None if rows is None else without(rows, hashes)
        if rows is not None and left is not None and len(left) < len(rows):
            self._rewrite(left)

    def replace(self, rows: Rows) -> None:
        """Store other rows."""
        self._rewrite(rows)

    def all_rows(self) -> Rows | None:
        """Return the rows of all pieces, not net; None without any."""
        parts = [self._rows(self.pieces[name]) for name in sorted(self.pieces)]
        return Rows.together(parts) if parts else None

    def write(self, key: str, commit: Commit, version: bytes) -> None:
        """Write the changes into a commit."""
        unwritten = {
            str(name): piece.data for name, piece in self.pieces.items() if piece.is_unwritten
        }
        gone = [str(name) for name in sorted(self._gone - self.pieces.keys())]
        about = {HALVINGS: str(self.halvings).encode(), LAST_CHANGE: version}
        commit.set_fields(key, unwritten | about)
        if gone:
            commit.drop_fields(key, gone)
        for piece in self.pieces.values():
            piece.is_unwritten = False
        self._gone, self.changed, self.fell = set(), False, False

    def fall_to(self, halvings: int) -> None:
        """Take a threshold if it is lower."""
        if halvings <= self.halvings:
            return
        self.halvings, self.fell, self.changed = halvings, True, True
        rows = self.all_rows()
        if rows is not None:
            self._rewrite(rows)

    def _reduce_to_bound(self) -> None:
        """Make one piece of all, below a threshold at which it fits."""
        rows = self.all_rows()
        assert rows is not None
        rows = occurring(counted(rows))
        while self.halvings < MAX_HALVINGS and (
            int(row_bytes(below_threshold(rows, self.halvings)).sum()) > self.max_bytes
        ):
            self.halvings, self.fell = self.halvings + 1, True
        self._rewrite(rows)

    def _rewrite(self, rows: Rows) -> None:
        for name in list(self.pieces):
            self._drop(name)
        self.changed = True
        self._put(0, occurring(counted(below_threshold(rows, self.halvings))))

    def _put(self, name: int, rows: Rows) -> None:
        if len(rows):
            n_bytes = int(row_bytes(rows).sum())
            self.pieces[name] = _Piece(rows.pack(), len(rows), n_bytes)

    def _drop(self, name: int) -> _Piece:
        self._gone.add(name)
        return self.pieces.pop(name)

    @staticmethod
    def _rows(piece: _Piece) -> Rows:
        return Rows.unpack(piece.data)


class SampleCache:
    """Samples of one partition that commits change.

    Parameters
    ----------
    max_bytes : bound of each; with 0 none is stored
    cold : days in files, if other changes of the same commits note them there too

    Attributes
    ----------
    used : samples that were read or changed since the last write
    """

    def __init__(
        self, node: Any, keys: PartitionKeys, max_bytes: int, cold: ColdDays | None = None
    ):
        self._node = node
        self._keys = keys
        self._cold = cold or ColdDays(node, keys)
        self.max_bytes = max_bytes
        self._cached: dict[SampleKey, CachedSample] = {}
        self.used: set[SampleKey] = set()

    def __getitem__(self, key: SampleKey) -> CachedSample:
        """Return a sample, read if it is not cached.

        Raises
        ------
        PackingError
            A piece is damaged.
        """
        self.used.add(key)
        if key not in self._cached:
            self._cached[key] = self._read(key)
        return self._cached[key]

    def _read(self, key: SampleKey) -> CachedSample:
        [found] = self._cold.fields((key.model, key.generation), [key.item])
        if isinstance(found, PackingError):
            raise found
        if found is not None:
            return CachedSample.read(found, self.max_bytes).unstored()
        return CachedSample.read(self._node.hgetall(key.name(self._keys)), self.max_bytes)

    def keys(self) -> list[SampleKey]:
        """Return the cached samples."""
        return list(self._cached)

    def evict(self, key: SampleKey) -> None:
        """Drop one from the cache."""
        self._cached.pop(key, None)

    def forget(self) -> None:
        """Drop all from the cache."""
        self._cached.clear()
        self.used.clear()

    def renewed(self) -> Iterable[PaneKey]:
        """Yield every pane whose sample changes although its rows do not: those of a day whose threshold fell."""
        for key, sample in self._cached.items():
            if sample.fell:
                yield from self._panes_of(key)

    def write(self, commit: Commit, version: bytes) -> dict[SampleKey, int]:
        """Write all changes into a commit; return the bytes in memory of the samples used for it."""
        used, self.used = sorted(self.used & self._cached.keys()), set()
        for key in used:
            sample = self._cached[key]
            if sample.changed:
                sample.write(key.name(self._keys), commit, version)
                self._cold.take_back((key.model, key.generation), [key.item])
                commit.add_member(self._keys.samples(key.model, key.generation), key.member)
        return {key: self._cached[key].memory_bytes for key in used}

    def commit_with(self, commit: Commit, version: bytes) -> None:
        """Write all changes into a commit, with new versions of the panes whose sample changes although their rows do not."""
        write_versions(self.renewed(), commit, self._keys, version)
        self.write(commit, version)
        self._cold.write(commit)

    def _panes_of(self, key: SampleKey) -> Iterable[PaneKey]:
        model = (key.model, key.generation)
        for member in sorted(self._node.smembers(self._keys.slices(*model))):
            slice_ = member.decode()
            if not (is_sealed(slice_) if key.sealed else is_live(slice_)):
                continue
            for start in self._node.hkeys(self._keys.versions(*model, slice_)):
                if start != LAST_CHANGE.encode() and day_of(int(start)) == key.day_s:
                    yield PaneKey(*model, slice_, int(start))


def write_versions(
    panes: Iterable[PaneKey], commit: Commit, keys: PartitionKeys, version: bytes
) -> None:
    """Give panes a version, and their slices a last change."""
    by_slice: dict[PaneKey, dict[str, bytes]] = {}
    for key in sorted(panes, key=pane_order):
        fields = by_slice.setdefault(replace(key, start_s=0), {LAST_CHANGE: version})
        fields[str(key.start_s)] = version
    for key, fields in by_slice.items():
        commit.set_fields(keys.versions(key.model, key.generation, key.slice), fields)
