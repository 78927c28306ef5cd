"""Stored samples of a partition's models and days, as the last commit left them.

A sample consists of packed pieces, in the order of commits. Rows are added where they leave the tail of their time slice, in
the commit that makes them sums: until then the tail's rows below the threshold are part of the sample. Where the rows exceed
the bound, all pieces become one and the threshold is halved until it fits. It never rises. The labelled predictions of a
model's cohorts at their seal are a second sample of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from calibrant.core.hashing import U64
from calibrant.core.packing import PackingError
from calibrant.core.sampled_rows import MAX_HALVINGS
from calibrant_server.workers.segments.pieces import Pieces, sorted_pieces
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import (
    below_threshold,
    counted,
    occurring,
    row_bytes,
    without,
)
from calibrant_server.workers.store.cold_days import ColdDays
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.day_file import DayItem, sample_item
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.slice_names import is_live, is_sealed
from calibrant_server.workers.store.watermarks import day_of, pane_starts

# Field of a stored sample that has its threshold.
HALVINGS = "h"
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
    def of_model(self) -> tuple[str, str]:
        """Model and generation."""
        return self.model, self.generation

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


def stored_rows(fields: Mapping[bytes, bytes]) -> Rows | None:
    """Return the rows of a stored sample, not net; None without pieces.

    Raises
    ------
    PackingError
        A piece is damaged.
    """
    pieces = [data for _, data in sorted_pieces(fields)]
    return Rows.unpack_pieces(pieces) if pieces else None


def halvings_of(fields: Mapping[bytes, bytes]) -> int:
    """Return the threshold of a stored sample."""
    return int(fields.get(HALVINGS.encode(), 0))


class CachedSample(Pieces):
    """Pieces of a sample in memory; equal rows are stored once with their count.

    Attributes
    ----------
    max_bytes : the bound on its rows
    halvings : how often the threshold was halved
    fell : whether that happened since the last commit
    changed : whether anything did
    """

    def __init__(self, max_bytes: int, fields: Mapping[bytes, bytes] | None = None) -> None:
        """Read a sample as it is stored.

        Raises
        ------
        PackingError
            A piece is damaged.
        """
        super().__init__(Rows, counted, lambda rows: {"": int(row_bytes(rows).sum())}, fields)
        self.max_bytes, self.halvings = max_bytes, halvings_of(fields or {})
        self.fell = self.changed = False

    def add(self, added: Rows, halvings: int = 0) -> None:
        """Add rows, and take their threshold where it is lower."""
        self.fall_to(halvings)
        added = below_threshold(added, self.halvings)
        if not len(added):
            return
        self.changed = True
        self.append(added)
        if self.total[""] > self.max_bytes:
            self._reduce_to_bound()

    def without(self, hashes: U64) -> None:
        """Remove the rows of some ids, with every trace of them."""
        rows = self.all_rows()
        left = None if rows is None else without(rows, hashes)
        if rows is not None and left is not None and len(left) < len(rows):
            self.replace(left)

    def replace(self, rows: Rows) -> None:
        """Store other rows, as far as they are below the threshold."""
        self.changed = True
        super().replace(occurring(counted(below_threshold(rows, self.halvings))))

    def write_changed(self, key: str, commit: Commit, version: bytes) -> None:
        """Write the changes into a commit, with the threshold and the version."""
        self.write(key, commit)
        commit.set_fields(key, {HALVINGS: str(self.halvings).encode(), LAST_CHANGE: version})
        self.changed = self.fell = False

    def fall_to(self, halvings: int) -> None:
        """Take a threshold if it is lower."""
        if halvings <= self.halvings:
            return
        self.halvings, self.fell, self.changed = halvings, True, True
        rows = self.all_rows()
        if rows is not None:
            self.replace(rows)

    def _reduce_to_bound(self) -> None:
        """Make one piece of all, below a threshold at which it fits."""
        rows = occurring(counted(self.all_rows()))
        while self.halvings < MAX_HALVINGS and (
            int(row_bytes(below_threshold(rows, self.halvings)).sum()) > self.max_bytes
        ):
            self.halvings, self.fell = self.halvings + 1, True
        self.replace(rows)


class SampleCache:
    """Samples of one partition that a commit changes.

    Parameters
    ----------
    max_bytes : bound of each; with 0 none is stored
    cold : days in files, if other changes of the same commits bring them back too
    cached : returns a sample as the last commit left it, if it is in memory
    """

    def __init__(
        self,
        node: Any,
        keys: PartitionKeys,
        max_bytes: int,
        cold: ColdDays | None = None,
        cached: Callable[[SampleKey], CachedSample | None] = lambda key: None,
    ):
        self._node = node
        self._keys = keys
        self._cold = cold or ColdDays(node, keys)
        self.max_bytes = max_bytes
        self._cached = cached
        self.used: dict[SampleKey, CachedSample] = {}

    def __getitem__(self, key: SampleKey) -> CachedSample:
        """Return a sample, read if it is not in memory.

        Raises
        ------
        PackingError
            A piece is damaged.
        """
        if key not in self.used:
            self.used[key] = self._cached(key) or self._read(key)
        return self.used[key]

    def _read(self, key: SampleKey) -> CachedSample:
        [found] = self._cold.fields([(key.of_model, key.item)])
        if isinstance(found, PackingError):
            raise found
        if found is None:
            found = self._node.hgetall(key.name(self._keys))
        return CachedSample(self.max_bytes, found)

    def changed(self) -> list[tuple[tuple[str, str], DayItem]]:
        """Return the models and days of the samples that changed."""
        return [(key.of_model, key.item) for key, each in self.used.items() if each.changed]

    def renewed(self) -> Iterable[PaneKey]:
        """Yield every pane whose sample changes although its rows do not: those of a day whose threshold fell."""
        for key, sample in self.used.items():
            if sample.fell:
                yield from self._panes_of(key)

    def write(self, commit: Commit, version: bytes) -> None:
        """Write all changes into a commit."""
        for key, sample in sorted(self.used.items()):
            if sample.changed:
                sample.write_changed(key.name(self._keys), commit, version)
                commit.add_member(self._keys.samples(key.model, key.generation), key.member)

    def commit_with(self, commit: Commit, version: bytes) -> None:
        """Write all changes into a commit, with new versions of the panes whose sample changes although their rows do not."""
        self._cold.bring_back(commit, self.changed())
        write_versions(self.renewed(), commit, self._keys, version)
        self.write(commit, version)

    def _panes_of(self, key: SampleKey) -> Iterable[PaneKey]:
        model = (key.model, key.generation)
        panes = pane_starts(self._node, self._keys, model, is_sealed if key.sealed else is_live)
        for slice_, starts in panes.items():
            for start in starts:
                if day_of(start) == key.day_s:
                    yield PaneKey(*model, slice_, start)


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
