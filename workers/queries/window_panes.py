"""Panes of a window, all from one moment: separately, or merged.

Panes are read in runs. Each run also reads the versions of all panes; panes that changed since they were read are
read again, until all loaded panes have the versions of the last run. Panes are merged in groups of
neighbours that start at fixed times, and merges are cached by the versions of their panes. If one pane has changed or
the window has moved on, the other groups are available and their panes need not be read.

A pane is its stored sums together with the rows of its time slice that are not sums yet. Both are read at one moment. The
fold of the rows stays in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log2
from typing import Any, NamedTuple

from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import divided, whole_pane
from calibrant_server.workers.queries.versions import name_state, panes_in
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.lru_cache import LruCache
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks, fields_of, plain_slice
from calibrant_server.workers.store.windows import Dated, Window

log = logging.getLogger(__name__)

_TRIES = 20
# Merged windows in the memory cache: a dashboard requests about 12 windows repeatedly.
_WINDOWS_KEPT = 16
# Each pane comes with its tail, of at most `MAX_TAIL_BYTES`, or twice that while sums are damaged: 128 MiB in one reply.
_PANES_A_RUN = 16
_PANE_OVERHEAD_BYTES = 2000
# A merge takes at most about four times the size of its largest pane: then all cells are filled.
_FULLEST = 4

Wanted = tuple[str, ...] | None
Group = tuple[tuple[int, bytes], ...]


class PanesDamaged(RuntimeError):
    """Panes of the window cannot be read: no result is computed from the others as if these were empty.

    Attributes
    ----------
    panes : each with slice, first and last time, and the error
    """

    def __init__(self, panes: list[dict[str, str]]):
        super().__init__(f"{len(panes)} panes of the window cannot be read")
        self.panes = panes


class LoadedPane(NamedTuple):
    """A pane or a merge of panes, with its size in bytes."""

    pane: Any
    n_bytes: int

    def size_of(self) -> int:
        """Return the bytes that it counts for in a cache."""
        return self.n_bytes


@dataclass(frozen=True)
class WindowState:
    """Window as one state.

    Attributes
    ----------
    spans : start and length of its panes in seconds, oldest first; none if no pane was requested
    window : with its current boundaries
    panes : each with its place in time, if requested separately
    merged : their merge, if requested
    """

    version: str
    spans: list[tuple[int, int]]
    window: Window
    marks: Watermarks
    panes: list[Dated] = field(default_factory=list)
    merged: Any = None


@dataclass(frozen=True)
class _Place:
    """Slice and window of a query, and the requested parts of its panes."""

    config: ModelConfig
    slice: str
    window: Window
    wanted: Wanted

    @property
    def name(self) -> tuple[Any, ...]:
        return self.config.key, self.config.generation, self.slice, self.wanted


@dataclass(frozen=True)
class _Seen:
    """Versions of the window's panes by start and the slice's marks, at one moment."""

    window: Window
    versions: dict[int, bytes]
    marks: Watermarks

    def state(self, place: _Place, alarm: bytes, **more: Any) -> WindowState:
        config, marks = place.config, self.marks
        name = name_state(config, place.slice, self.window, self.versions, marks, alarm)
        spans = [(start, marks.length(start, config.pane_s)) for start in self.versions]
        return WindowState(name, spans, self.window, marks, **more)

    def groups(self, pane_s: int) -> list[tuple[int, Group]]:
        """Return neighbouring panes, about as many per group as there are groups, each with its number in time."""
        if not self.versions:
            return []
        size_s = pane_s << max(1, round(log2(len(self.versions)) / 2))
        numbered: dict[int, list[tuple[int, bytes]]] = {}
        for start, version in self.versions.items():
            numbered.setdefault(start // size_s, []).append((start, version))
        return [(number, tuple(group)) for number, group in numbered.items()]


class WindowPanes:
    """Reader and cache of panes of windows; several threads may share one object."""

    def __init__(self, store: Store, ground: Numerics):
        self._store = store
        self._ground = ground
        self._kept: LruCache[Any, LoadedPane] = LruCache(
            store.settings.pane_cache_bytes, LoadedPane.size_of
        )
        self._windows: LruCache[Any, Any] = LruCache(_WINDOWS_KEPT)
        self._groups: LruCache[Any, Group] = LruCache(64 * _WINDOWS_KEPT)

    def none(self, config: ModelConfig, slice_: str, window: Window, alarm: bytes) -> WindowState:
        """Return the name of the state, and no pane."""
        place = _Place(config, slice_, window, None)
        seen = self._look(place, [], {})
        name = name_state(config, slice_, seen.window, {}, seen.marks, alarm)
        return WindowState(name, [], seen.window, seen.marks)

    def each(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the panes separately."""
        place = _Place(config, slice_, window, wanted)
        loaded: dict[int, tuple[bytes, LoadedPane]] = {}
        seen = self._look(place, [], loaded)
        for _ in range(_TRIES + len(seen.versions) // _PANES_A_RUN):
            missing = self._missing(place, seen.versions.items(), loaded)
            if not missing:
                state = seen.state(place, alarm)
                for start, length in state.spans:
                    version, each = loaded[start]
                    self._kept.put((*place.name, start, version), each)
                    state.panes.append(Dated(start, length, each.pane))
                return state
            seen = self._look(place, missing, loaded)
        raise RuntimeError("the window changed faster than it could be read")

    def merged(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the merge of the panes. Results must not change it: it is cached."""
        place = _Place(config, slice_, window, wanted)
        loaded: dict[int, tuple[bytes, LoadedPane]] = {}
        merges: dict[Group, LoadedPane] = {}
        seen = self._look(place, [], loaded)
        for _ in range(_TRIES + len(seen.versions) // _PANES_A_RUN):
            version = seen.state(place, b"").version
            whole = self._windows.get((version, wanted))
            missing = [] if whole is not None else self._gather(place, seen, loaded, merges)
            if not missing:
                if whole is None:
                    parts = [merges[group].pane for _, group in seen.groups(config.pane_s)]
                    whole = self._windows.put((version, wanted), self._merge(config, parts))
                return seen.state(place, alarm, merged=whole)
            seen = self._look(place, missing, loaded)
        raise RuntimeError("the window changed faster than it could be read")

    def _gather(
        self,
        place: _Place,
        seen: _Seen,
        loaded: dict[int, tuple[bytes, LoadedPane]],
        merges: dict[Group, LoadedPane],
    ) -> list[int]:
        """Merge the groups whose panes are all loaded; return the panes that others lack."""
        missing: list[int] = []
        groups = seen.groups(place.config.pane_s)
        for number, group in groups:
            if group in merges:
                continue
            name = (*place.name, group)
            merge = self._kept.get(name)
            if merge is None:
                lacking = self._missing(place, group, loaded)
                if lacking:
                    missing += lacking
                    continue
                parts = [loaded.pop(start)[1] for start, _ in group]
                self._keep_changing(place, number, group, parts, number == groups[-1][0])
                largest = max(each.n_bytes for each in parts)
                size = min(sum(each.n_bytes for each in parts), _FULLEST * largest)
                merge = LoadedPane(self._merge(place.config, [each.pane for each in parts]), size)
                self._kept.put(name, merge)
            merges[group] = merge
        return missing

    def _keep_changing(
        self, place: _Place, number: int, group: Group, parts: list[LoadedPane], newest: bool
    ) -> None:
        """Cache the panes of a group that changes, so that next time only the changed one is read."""
        name = (*place.name, number)
        earlier = self._groups.get(name)
        self._groups.put(name, group)
        if newest or earlier not in (None, group):
            for (start, version), each in zip(group, parts, strict=True):
                self._kept.put((*place.name, start, version), each)

    def _merge(self, config: ModelConfig, panes: list[Any]) -> Any:
        return self._ground.window(self._ground.spec(config)).merge_all(panes)

    def _missing(
        self,
        place: _Place,
        versions: Iterable[tuple[int, bytes]],
        loaded: dict[int, tuple[bytes, LoadedPane]],
    ) -> list[int]:
        """Return the panes that are neither loaded nor cached; cached ones are loaded from here on."""
        missing = []
        for start, version in versions:
            if start in loaded and loaded[start][0] == version:
                continue
            stored = self._kept.get((*place.name, start, version))
            if stored is None:
                missing.append(start)
            else:
                loaded[start] = (version, stored)
        return missing

    def _look(
        self, place: _Place, missing: list[int], loaded: dict[int, tuple[bytes, LoadedPane]]
    ) -> _Seen:
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
            _read_parts(reads, keys.pane(key), place.wanted)
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
        return _Seen(window, versions, marks)

    def _decode(self, place: _Place, reply: Any, tail: dict[bytes, bytes]) -> LoadedPane:
        if place.wanted is None:
            parts = divided(reply)[0]
        else:
            parts = {
                name: value
                for name, value in zip(place.wanted, reply, strict=True)
                if value is not None
            }
        pane = whole_pane(self._ground, place.config, place.slice, parts, tail, place.wanted)
        n_bytes = sum(map(len, parts.values()))
        if tail:
            n_bytes = max(n_bytes, pane.tighten().memory_bytes)
        return LoadedPane(pane, n_bytes + _PANE_OVERHEAD_BYTES)


def _described(place: _Place, start_s: int, length_s: int, error: Exception) -> dict[str, str]:
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
