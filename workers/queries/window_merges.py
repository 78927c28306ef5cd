"""Merges of the panes of a window: by parts, from the smaller parts that are cached or stored.

Panes are merged in parts (`window_state`), and merges are cached by the versions of their panes, in memory and in the store
(`stored_merges`). If one pane has changed or the window has moved on, the other parts are available and their panes need not
be read. Rows of panes that are merged are filled together, into the merge: a fill has a high fixed cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from calibrant.core.routing import ROWS_TOGETHER
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import PaneRows
from calibrant_server.workers.queries.pane_reader import Loaded, PaneReader
from calibrant_server.workers.queries.stored_merges import StoredMerges
from calibrant_server.workers.queries.window_state import (
    DAYS,
    LONGEST,
    LoadedPane,
    LruCache,
    WindowPart,
    WindowPlace,
    WindowSnapshot,
    parts_every,
    parts_of,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.watermarks import DAY_S

# Parts whose last state is known, to tell which of them change.
_MAX_PARTS = 1024


@dataclass
class Assembly:
    """What one query has loaded so far.

    Attributes
    ----------
    panes : by start, with their versions
    merges : by part
    parts : of the window as last read
    every_s : length of the parts of a series; None if all parts become one merge
    last_s : length of the last side; its panes and those before it are in parts of their own
    stores : whether merges of its parts are stored; writing one takes as long as reading a few panes
    n_read : panes read from the store
    n_stored : panes in merges that were stored
    """

    place: WindowPlace
    panes: Loaded = field(default_factory=dict)
    merges: dict[WindowPart, LoadedPane] = field(default_factory=dict)
    parts: list[WindowPart] = field(default_factory=list)
    versions: dict[int, bytes] | None = None
    every_s: int | None = None
    last_s: int = 0
    stores: bool = True
    n_read: int = 0
    n_stored: int = 0

    def divide(self, snapshot: WindowSnapshot) -> None:
        """Divide the panes of the window into parts."""
        self.versions = snapshot.versions
        if self.every_s is None:
            self.parts = [part for side in self._sides(snapshot) for part in parts_of(side)]
        else:
            self.parts = parts_every(snapshot.versions, self.every_s)

    def _sides(self, snapshot: WindowSnapshot) -> list[dict[int, bytes]]:
        if not self.last_s:
            return [snapshot.versions]
        spans = snapshot.spans(self.place.config)
        cut = max((start + length for start, length in spans), default=0) - self.last_s
        sides: list[dict[int, bytes]] = [{}, {}]
        for start, version in snapshot.versions.items():
            sides[start >= cut][start] = version
        return sides

    @property
    def newest_s(self) -> int:
        """Start of the newest pane."""
        return self.parts[-1].panes[-1][0]

    @property
    def n_kept(self) -> int:
        """How many panes were read that the next query of the window need not read, as their merges are stored."""
        return min(self.n_read, self.n_stored)

    @property
    def counts(self) -> dict[str, int]:
        """What the state says of the panes that were read for it."""
        return {"n_kept": self.n_kept, "n_read": self.n_read}

    @property
    def loaded_bytes(self) -> int:
        """Memory of the panes that are not merged yet."""
        return sum(each.n_bytes for _, each in self.panes.values())


class WindowMerges:
    """Merges parts of windows, and caches what the next query can use."""

    def __init__(
        self, store: Store, numerics: Numerics, reader: PaneReader, cached: LruCache[Any, Any]
    ):
        self._numerics = numerics
        self._reader = reader
        self._cached = cached
        self._changing: LruCache[Any, bytes] = LruCache(_MAX_PARTS)
        self._stored = StoredMerges(store, numerics)

    def assemble(self, assembly: Assembly, snapshot: WindowSnapshot) -> list[int]:
        """Merge the parts whose panes are all loaded; return the panes that others lack."""
        if assembly.versions != snapshot.versions:
            assembly.divide(snapshot)
            self._find_stored(assembly, snapshot)
        missing: list[int] = []
        for part in assembly.parts:
            self._resolve(assembly, part, missing)
        return missing

    def _find_stored(self, assembly: Assembly, snapshot: WindowSnapshot) -> None:
        """Load merges that are not in memory from the store, the largest that it has."""
        place = assembly.place
        if not self._stored.supports(place.parts):
            return
        sought = assembly.parts
        while sought := [part for part in sought if self._is_sought(assembly, part)]:
            found = self._stored.read(
                place.config, place.slice, place.window.from_s, place.parts, sought
            )
            for part, pane in found.items():
                merge = assembly.merges[part] = LoadedPane.of(pane)
                self._keep(place, part, merge)
            sought = [each for part in sought if part not in found for each in part.smaller]

    def _is_sought(self, assembly: Assembly, part: WindowPart) -> bool:
        return (
            self._is_stored(assembly, part)
            and part not in assembly.merges
            and self._cached.get((*assembly.place.name, part.panes)) is None
        )

    @staticmethod
    def _is_stored(assembly: Assembly, part: WindowPart) -> bool:
        """Whether the merge of a part belongs into the store: days and longer, and what precedes the newest pane."""
        if part.is_pane or part.level > LONGEST:
            return False
        return part.level >= DAYS or (assembly.every_s is None and part in assembly.parts)

    @staticmethod
    def _is_inside(assembly: Assembly, part: WindowPart, within: WindowPart | None) -> bool:
        """Whether a part is a day inside 8 days that are complete: their merge is read in its place.

        A query of complete panes may end before it has read 8 days: then it stores the merges of their days too.
        """
        is_complete = assembly.place.wanted is None and assembly.stores
        if within is None or part.level != DAYS or is_complete:
            return False
        return within.is_whole(assembly.place.window.from_s, assembly.newest_s)

    def _resolve(
        self,
        assembly: Assembly,
        part: WindowPart,
        missing: list[int],
        within: WindowPart | None = None,
    ) -> LoadedPane | None:
        """Return a part's merge; None if panes are missing, which are then added to `missing`.

        Parameters
        ----------
        within : the larger part that it becomes part of
        """
        place = assembly.place
        found = assembly.merges.get(part) or self._cached.get((*place.name, part.panes))
        is_new = found is None
        if found is None and part.is_pane:
            lacking = self.missing_panes(place, part.panes, assembly.panes)
            missing += lacking
            found = None if lacking else assembly.panes.pop(part.panes[0][0])[1]
        elif found is None:
            found = self._merged(assembly, part, missing, within)
        if found is None:
            return None
        if (is_new or found.rows is not None) and part in assembly.parts:
            if part.is_pane:
                found = self._reader.complete(place, found)
            else:
                # Dense, the parts of a window would take several times its memory.
                found = self._reader.filled(place, found).compacted()
            self._keep(place, part, found)
        assembly.merges[part] = found
        return found

    def _keep(self, place: WindowPlace, part: WindowPart, found: LoadedPane) -> None:
        """Cache a merge; not of complete panes, which are read once, for an archived report."""
        if place.wanted is not None:
            self._cached.put((*place.name, part.panes), found)

    def _merged(
        self, assembly: Assembly, part: WindowPart, missing: list[int], within: WindowPart | None
    ) -> LoadedPane | None:
        smaller = [self._resolve(assembly, each, missing, part) for each in part.smaller]
        loaded = [each for each in smaller if each is not None]
        if len(loaded) < len(smaller):
            return None
        place = assembly.place
        is_stored = self._is_stored(assembly, part)
        is_stored = is_stored and not self._is_inside(assembly, part, within)
        for i in self._reused(assembly, part, loaded, is_stored):
            loaded[i] = self._reader.filled(place, loaded[i]).compacted()
            self._keep(place, part.smaller[i], loaded[i])
        merge = self.merge(place, loaded, fills=is_stored)
        for each in part.smaller:
            del assembly.merges[each]
        if (
            is_stored
            and assembly.stores
            and self._stored.supports(place.parts)
            and self._stored.write(
                place.config, place.slice, place.window.from_s, place.parts, part, merge.pane
            )
        ):
            assembly.n_stored += len(part.panes)
        return merge

    def _reused(
        self, assembly: Assembly, part: WindowPart, loaded: list[LoadedPane], is_stored: bool
    ) -> list[int]:
        """Return which of the smaller parts to cache, so that next time only what has changed is read.

        All of them where the part changes and is not read for the first time: most windows are read once. Otherwise merges whose rows
        are filled; none if the store has the part's merge, or of complete panes.
        """
        place = assembly.place
        if place.wanted is None:
            return []
        name = (*place.name, part.level, part.start_s)
        earlier = self._changing.get(name)
        self._changing.put(name, part.state)
        newest_s = assembly.newest_s
        is_newest = part.panes[-1][0] >= newest_s - newest_s % DAY_S
        changes = earlier is not None and (is_newest or earlier != part.state)
        if not changes and is_stored and self._stored.supports(place.parts):
            return []
        return [
            i
            for i, each in enumerate(part.smaller)
            if (changes or not (each.is_pane or loaded[i].rows is not None))
            and self._cached.get((*place.name, each.panes)) is None
        ]

    def merge(self, place: WindowPlace, loaded: list[LoadedPane], fills: bool = True) -> LoadedPane:
        """Return the merge of panes; unless `fills`, some rows may still have to be filled into it."""
        spec, panes = self._numerics.spec(place.config), [each.pane for each in loaded]
        several = [each.rows for each in loaded if each.rows is not None]
        if not several:
            return LoadedPane.of(self._numerics.window(spec).merge_all(panes))
        sums = self._numerics.of_parts(spec, {}, place.wanted).merge_all(panes)
        merge = LoadedPane.of(sums, PaneRows.of(self._numerics, several))
        return (
            self._reader.filled(place, merge)
            if fills or len(merge.rows) >= ROWS_TOGETHER
            else merge
        )

    def missing_panes(
        self,
        place: WindowPlace,
        versions: Iterable[tuple[int, bytes]],
        loaded: Loaded,
    ) -> list[int]:
        """Return the panes that are neither loaded nor cached; cached ones are loaded from here on."""
        missing = []
        for start, version in versions:
            if start in loaded and loaded[start][0] == version:
                continue
            stored = self._cached.get((*place.name, ((start, version),)))
            if stored is None:
                missing.append(start)
            else:
                loaded[start] = (version, stored)
        return missing
