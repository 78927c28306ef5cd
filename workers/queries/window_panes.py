"""Panes of a window, all from one moment: separately, or merged.

Panes are read in runs. Each run also reads the versions of all panes; panes that changed since they were read are
read again, until all loaded panes have the versions of the last run. Panes are merged in parts
(`window_state`), and merges are cached by the versions of their panes, in memory and in the store (`stored_merges`). If one pane
has changed or the window has moved on, the other parts are available and their panes need not be read.

A pane is its stored sums together with the rows of its time slice that are not sums yet. Both are read at one moment. The
fold of the rows stays in memory. Rows of panes that are merged are filled together, into the merge: a fill has a high fixed cost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from calibrant.accumulators.sample import WINDOW_BYTES
from calibrant.core.packing import PackingError
from calibrant.core.routing import ROWS_TOGETHER
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import SampleChangedError, merged_sample
from calibrant_server.workers.ingest.stored_panes import divided, rows_of_panes, sums_and_rows
from calibrant_server.workers.queries.stored_merges import StoredMerges
from calibrant_server.workers.queries.versions import name_state, panes_in
from calibrant_server.workers.queries.window_samples import SampleDamaged, WindowSamples
from calibrant_server.workers.queries.window_state import (
    DAYS,
    LoadedPane,
    LruCache,
    PanesDamaged,
    Part,
    Place,
    Wanted,
    WindowSnapshot,
    WindowState,
    parts_of,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.slice_names import plain_slice
from calibrant_server.workers.store.watermarks import DAY_S, Watermarks, fields_of
from calibrant_server.workers.store.windows import DatedPane, Window

log = logging.getLogger(__name__)

_TRIES = 20
# Merged windows in the memory cache: a dashboard requests about 12 windows repeatedly.
_MAX_WINDOWS = 16
# Each pane comes with its tail, of at most `MAX_TAIL_BYTES`, or twice that while sums are damaged: 128 MiB in one reply.
_PANES_A_RUN = 16


@dataclass
class _Gathering:
    """What one query has loaded so far.

    Attributes
    ----------
    panes : by start, with their versions
    merges : by part
    parts : of the window as last read
    """

    place: Place
    panes: dict[int, tuple[bytes, LoadedPane]] = field(default_factory=dict)
    merges: dict[Part, LoadedPane] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    versions: dict[int, bytes] | None = None


class WindowPanes:
    """Reader and cache of panes of windows; several threads may share one object."""

    def __init__(self, store: Store, numerics: Numerics):
        self._store = store
        self._numerics = numerics
        self._cached: LruCache[Any, Any] = LruCache(
            store.settings.pane_cache_bytes, lambda each: int(each.size_of())
        )
        self._samples = WindowSamples(store, numerics, self._cached)
        self._windows: LruCache[Any, Any] = LruCache(_MAX_WINDOWS)
        self._changing: LruCache[Any, bytes] = LruCache(64 * _MAX_WINDOWS)
        self._stored = StoredMerges(store, numerics)

    def none(self, config: ModelConfig, slice_: str, window: Window, alarm: bytes) -> WindowState:
        """Return the name of the state, and no pane."""
        place = Place(config, slice_, window, None)
        snapshot = self._look(place, [], {})
        name = name_state(config, slice_, snapshot.window, {}, snapshot.marks, alarm)
        return WindowState(name, [], snapshot.window, snapshot.marks)

    def each(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the panes separately."""
        place = Place(config, slice_, window, wanted)
        loaded: dict[int, tuple[bytes, LoadedPane]] = {}
        snapshot = self._look(place, [], loaded)
        for _ in range(_TRIES + len(snapshot.versions) // _PANES_A_RUN):
            missing = self._missing(place, snapshot.versions.items(), loaded)
            if not missing:
                state = snapshot.state(place, alarm)
                for start, length in state.spans:
                    version, each = loaded[start]
                    each = self._complete(place, each)
                    loaded[start] = version, each
                    self._cached.put((*place.name, ((start, version),)), each)
                    state.panes.append(DatedPane(start, length, each.pane))
                if self._with_samples(place, snapshot, state):
                    return state
            snapshot = self._look(place, missing, loaded)
        raise RuntimeError("the window changed faster than it could be read")

    def merged(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the merge of the panes. Results must not change it: it is cached."""
        place = Place(config, slice_, window, wanted)
        gathering = _Gathering(place)
        snapshot = self._look(place, [], gathering.panes)
        for _ in range(_TRIES + len(snapshot.versions) // _PANES_A_RUN):
            version = snapshot.state(place, b"").version
            merge = self._windows.get((version, wanted))
            missing = [] if merge is not None else self._gather(gathering, snapshot)
            if not missing and merge is None:
                parts = [gathering.merges[part] for part in gathering.parts]
                merge = self._merge_with_sample(place, snapshot, parts)
                if merge is not None:
                    self._windows.put((version, wanted), merge)
            if merge is not None:
                return snapshot.state(place, alarm, merged=merge)
            snapshot = self._look(place, missing, gathering.panes)
        raise RuntimeError("the window changed faster than it could be read")

    def _merge_with_sample(
        self, place: Place, snapshot: WindowSnapshot, parts: list[LoadedPane]
    ) -> Any:
        """Return the merge of panes with its sample; None if the window changed while the sample was read."""
        merge = self._merge(place, parts).pane
        if not (place.wants_sample and self._samples.are_stored(place.config)):
            return merge
        if place.leaves_sample_out(merge.counts["n_labelled"]):
            return merge
        try:
            days = self._samples.days(place.config, place.slice, snapshot.marks, snapshot.versions)
        except SampleChangedError:
            return None
        except SampleDamaged as error:
            raise _damaged_sample(place, snapshot, error) from error
        spec = self._numerics.spec(place.config)
        return merge.replace_sample(merged_sample(spec, days, WINDOW_BYTES))

    def _with_samples(self, place: Place, snapshot: WindowSnapshot, state: WindowState) -> bool:
        """Give each pane of a state its sample; return False if the window changed meanwhile."""
        if not (place.wants_sample and self._samples.are_stored(place.config)):
            return True
        try:
            found = self._samples.panes(
                place.config, place.slice, snapshot.marks, snapshot.versions
            )
        except SampleChangedError:
            return False
        except SampleDamaged as error:
            raise _damaged_sample(place, snapshot, error) from error
        # The cached panes stay as they are: their sample counts for the cache of days.
        state.panes[:] = [
            each._replace(pane=each.pane.copy().replace_sample(found[each.start_s]))
            for each in state.panes
        ]
        return True

    def _gather(self, gathering: _Gathering, snapshot: WindowSnapshot) -> list[int]:
        """Merge the parts whose panes are all loaded; return the panes that others lack."""
        if gathering.versions != snapshot.versions:
            gathering.versions, gathering.parts = snapshot.versions, parts_of(snapshot.versions)
            self._find_stored(gathering, snapshot)
        missing: list[int] = []
        for part in gathering.parts:
            self._resolve(gathering, part, missing)
        return missing

    def _find_stored(self, gathering: _Gathering, snapshot: WindowSnapshot) -> None:
        """Load merges that are not in memory from the store, the largest that it has."""
        place = gathering.place
        if not self._stored.supports(place.parts):
            return
        assert place.parts is not None
        sought = gathering.parts
        while sought := [part for part in sought if self._is_sought(gathering, part)]:
            found = self._stored.read(
                place.config, place.slice, place.window.from_s, place.parts, sought
            )
            for part, pane in found.items():
                merge = gathering.merges[part] = LoadedPane.of(pane)
                self._cached.put((*place.name, part.panes), merge)
            sought = [each for part in sought if part not in found for each in part.smaller]

    def _is_sought(self, gathering: _Gathering, part: Part) -> bool:
        return (
            self._is_stored(gathering, part)
            and part not in gathering.merges
            and self._cached.get((*gathering.place.name, part.panes)) is None
        )

    @staticmethod
    def _is_stored(gathering: _Gathering, part: Part) -> bool:
        """Whether the merge of a part belongs into the store: days and longer, and what precedes the newest pane."""
        return not part.is_pane and (part.level >= DAYS or part in gathering.parts)

    def _resolve(self, gathering: _Gathering, part: Part, missing: list[int]) -> LoadedPane | None:
        """Return a part's merge; None if panes are missing, which are then added to `missing`."""
        place = gathering.place
        found = gathering.merges.get(part) or self._cached.get((*place.name, part.panes))
        is_new = found is None
        if found is None and part.is_pane:
            lacking = self._missing(place, part.panes, gathering.panes)
            missing += lacking
            found = None if lacking else gathering.panes.pop(part.panes[0][0])[1]
        elif found is None:
            found = self._merged(gathering, part, missing)
        if found is None:
            return None
        if (is_new or found.rows is not None) and part in gathering.parts:
            # Merges stay dense: others are added to them faster.
            fill = self._complete if part.is_pane else self._filled
            found = fill(place, found)
            self._cached.put((*place.name, part.panes), found)
        gathering.merges[part] = found
        return found

    def _merged(self, gathering: _Gathering, part: Part, missing: list[int]) -> LoadedPane | None:
        smaller = [self._resolve(gathering, each, missing) for each in part.smaller]
        loaded = [each for each in smaller if each is not None]
        if len(loaded) < len(smaller):
            return None
        place = gathering.place
        for i in self._reused(gathering, part, loaded):
            loaded[i] = self._filled(place, loaded[i]).compacted()
            self._cached.put((*place.name, part.smaller[i].panes), loaded[i])
        is_stored = self._is_stored(gathering, part)
        merge = self._merge(place, loaded, fills=is_stored)
        for each in part.smaller:
            del gathering.merges[each]
        if is_stored and self._stored.supports(place.parts):
            assert place.parts is not None
            self._stored.write(
                place.config, place.slice, place.window.from_s, place.parts, part, merge.pane
            )
        return merge

    def _reused(self, gathering: _Gathering, part: Part, loaded: list[LoadedPane]) -> list[int]:
        """Return which of the smaller parts to cache, so that next time only what has changed is read.

        All of them where the part changes, otherwise merges whose rows are filled.
        """
        place = gathering.place
        name = (*place.name, part.level, part.start_s)
        earlier = self._changing.get(name)
        self._changing.put(name, part.state)
        newest = gathering.parts[-1].start_s
        changes = part.panes[-1][0] >= newest - newest % DAY_S
        changes = changes or earlier not in (None, part.state)
        return [
            i
            for i, each in enumerate(part.smaller)
            if (changes or not (each.is_pane or loaded[i].rows is not None))
            and self._cached.get((*place.name, each.panes)) is None
        ]

    def _merge(self, place: Place, loaded: list[LoadedPane], fills: bool = True) -> LoadedPane:
        """Return the merge of panes; unless `fills`, some rows may still have to be filled into it."""
        spec, panes = self._numerics.spec(place.config), [each.pane for each in loaded]
        several = [each.rows for each in loaded if each.rows is not None]
        if not several:
            return LoadedPane.of(self._numerics.window(spec).merge_all(panes))
        sums = self._numerics.of_parts(spec, {}, place.wanted).merge_all(panes)
        merge = LoadedPane.of(sums, rows_of_panes(self._numerics, several))
        return self._filled(place, merge) if fills or len(merge.rows) >= ROWS_TOGETHER else merge

    def _complete(self, place: Place, loaded: LoadedPane) -> LoadedPane:
        """Return a pane whose sums have its rows, stored sparsely: a window has many.

        One without rows was stored sparsely where it was read. It may be cached, and other queries read it: it is not changed.
        """
        return loaded if loaded.rows is None else self._filled(place, loaded).compacted()

    def _filled(self, place: Place, loaded: LoadedPane) -> LoadedPane:
        """Return a pane whose sums have its rows; a pane that has rows yet belongs to one query, and is changed."""
        if loaded.rows is None:
            return loaded
        spec = self._numerics.spec(place.config)
        loaded.rows.fill_into(
            loaded.pane, place.slice, lambda: self._numerics.of_parts(spec, {}, place.wanted)
        )
        return LoadedPane.of(loaded.pane)

    def _missing(
        self,
        place: Place,
        versions: Iterable[tuple[int, bytes]],
        loaded: dict[int, tuple[bytes, LoadedPane]],
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

    def _look(
        self, place: Place, missing: list[int], loaded: dict[int, tuple[bytes, LoadedPane]]
    ) -> WindowSnapshot:
        """Read current versions and marks, and of the same moment a run of the missing panes."""
        config = place.config
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        run = missing[:_PANES_A_RUN]
        reads = ReadTogether()
        reads.hgetall(keys.versions(config.key, config.generation, place.slice))
        reads.hmget(keys.marks(config.key, config.generation), fields_of(place.slice))
        for start in run:
            key = PaneKey(config.key, config.generation, place.slice, start)
            _read_parts(reads, keys.pane(key), place.parts)
            reads.hgetall(keys.tail(key))
        found, values, *replies = reads.run(node)
        marks = Watermarks.read(values)
        window = marks.widened(place.window)
        versions = panes_in(found, window)
        damaged = []
        for start, reply, tail in zip(run, replies[::2], replies[1::2], strict=True):
            if start not in versions:
                continue
            try:
                loaded[start] = (versions[start], self._decode(place, reply, tail))
            except PackingError as error:
                damaged.append(_described(place, start, marks.length(start, config.pane_s), error))
        if damaged:
            raise PanesDamaged(damaged)
        return WindowSnapshot(window, versions, marks)

    def _decode(self, place: Place, reply: Any, tail: dict[bytes, bytes]) -> LoadedPane:
        if place.parts is None:
            parts = divided(reply)[0]
        else:
            parts = {
                name: value
                for name, value in zip(place.parts, reply, strict=True)
                if value is not None
            }
        pane, rows = sums_and_rows(
            self._numerics, place.config, place.slice, parts, tail, place.wanted
        )
        loaded = LoadedPane.of(pane.compact(), rows)
        # Many rows take more memory than their sums, and one fill of them costs little more than none.
        is_large = rows is not None and len(rows) >= ROWS_TOGETHER
        return self._complete(place, loaded) if is_large else loaded


def _damaged_sample(place: Place, snapshot: WindowSnapshot, error: SampleDamaged) -> PanesDamaged:
    pane_s = place.config.pane_s
    return PanesDamaged(
        [
            _described(place, start, snapshot.marks.length(start, pane_s), error)
            for start in error.starts
        ]
    )


def _described(place: Place, start_s: int, length_s: int, error: Exception) -> dict[str, str]:
    window = Window(start_s, start_s + length_s).to_dict()
    log.error(
        "pane_damaged model=%s slice=%s start=%s error=%s",
        place.config.key, place.slice, window["from"], error,
    )  # fmt: skip
    return {"slice": plain_slice(place.slice), **window, "error": str(error)[:200]}


def _read_parts(reads: ReadTogether, name: str, wanted: Wanted) -> None:
    if wanted is None:
        reads.hgetall(name)
    else:
        reads.hmget(name, wanted)
