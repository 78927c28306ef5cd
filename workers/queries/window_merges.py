"""Merges of the panes of a window: by parts, from the smaller parts that are cached.

Panes are merged in parts (`window_state`), and merges are cached by the versions of their panes, in memory. If one pane has
changed or the window has moved on, the other parts are available and their panes need not be read. Rows of panes that are
merged are filled together, into the merge: a fill has a high fixed cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from calibrant.core.routing import ROWS_TOGETHER
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import PaneRows
from calibrant_server.workers.queries.pane_reader import Loaded, PaneReader
from calibrant_server.workers.queries.window_state import (
    DAYS,
    LoadedPane,
    WindowPart,
    WindowPlace,
    WindowSnapshot,
)
from calibrant_server.workers.store.lru_cache import LruCache
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
    divide : returns the parts of a window
    """

    place: WindowPlace
    divide: Callable[[WindowSnapshot], list[WindowPart]]
    panes: Loaded = field(default_factory=dict)
    merges: dict[WindowPart, LoadedPane] = field(default_factory=dict)
    parts: list[WindowPart] = field(default_factory=list)
    versions: dict[int, bytes] | None = None

    @property
    def newest_s(self) -> int:
        """Start of the newest pane."""
        return self.parts[-1].panes[-1][0]

    @property
    def loaded_bytes(self) -> int:
        """Memory of the panes that are not merged yet."""
        return sum(each.n_bytes for _, each in self.panes.values())


class WindowMerges:
    """Merges parts of windows, and caches what the next query can use."""

    def __init__(self, numerics: Numerics, reader: PaneReader, cached: LruCache[Any, Any]):
        self._numerics = numerics
        self._reader = reader
        self._cached = cached
        self._changing: LruCache[Any, bytes] = LruCache(_MAX_PARTS)

    def assemble(self, assembly: Assembly, snapshot: WindowSnapshot) -> list[int]:
        """Merge the parts whose panes are all loaded; return the panes that others lack."""
        if assembly.versions != snapshot.versions:
            assembly.versions, assembly.parts = snapshot.versions, assembly.divide(snapshot)
        missing: list[int] = []
        for part in assembly.parts:
            self._resolve(assembly, part, missing, is_whole=True)
        return missing

    def _resolve(
        self, assembly: Assembly, part: WindowPart, missing: list[int], is_whole: bool = False
    ) -> LoadedPane | None:
        """Return a part's merge; None if panes are missing, which are then added to `missing`.

        Parameters
        ----------
        is_whole : whether it is a part of the window, not a smaller one of which such a part is merged
        """
        place = assembly.place
        found = assembly.merges.get(part) or self._cached.get((*place.name, part.panes))
        is_new = found is None
        if found is None and part.is_pane:
            lacking = self._missing_panes(place, part.panes, assembly.panes)
            missing += lacking
            found = None if lacking else assembly.panes.pop(part.panes[0][0])[1]
        elif found is None:
            found = self._merged(assembly, part, missing)
        if found is None:
            return None
        if is_whole and (is_new or found.rows is not None):
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
        self, assembly: Assembly, part: WindowPart, missing: list[int]
    ) -> LoadedPane | None:
        smaller = [self._resolve(assembly, each, missing) for each in part.smaller]
        loaded = [each for each in smaller if each is not None]
        if len(loaded) < len(smaller):
            return None
        place = assembly.place
        for i in self._reused(assembly, part, loaded):
            loaded[i] = self._reader.filled(place, loaded[i]).compacted()
            self._keep(place, part.smaller[i], loaded[i])
        merge = self.merge(place, loaded, fills=part.level >= DAYS)
        for each in part.smaller:
            del assembly.merges[each]
        return merge

    def _reused(self, assembly: Assembly, part: WindowPart, loaded: list[LoadedPane]) -> list[int]:
        """Return which of the smaller parts to cache, so that next time only what has changed is read.

        All of them where the part changes and is not read for the first time: most windows are read once. Otherwise merges whose rows
        are filled; none of complete panes.
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

    def _missing_panes(
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
