"""Panes of a window, all from one moment: separately, or merged.

The versions of all panes are read first, then panes in runs (`pane_reader`), each with its version. The last run reads all
versions again; panes that changed meanwhile are read again, until all loaded panes have the last versions. `window_merges`
merges them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from calibrant.accumulators.sample import WINDOW_BYTES
from calibrant.core.errors import CalibrationInputError
from calibrant.results.reads import SAMPLE
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import SampleChangedError, merged_sample
from calibrant_server.workers.queries.pane_reader import (
    PANES_A_RUN,
    Loaded,
    PaneReader,
    described,
)
from calibrant_server.workers.queries.pane_rows import RowReader
from calibrant_server.workers.queries.versions import name_state
from calibrant_server.workers.queries.window_merges import Assembly, WindowMerges
from calibrant_server.workers.queries.window_samples import SampleDamaged, WindowSamples
from calibrant_server.workers.queries.window_state import (
    LruCache,
    PanesDamaged,
    Wanted,
    WindowPlace,
    WindowSnapshot,
    WindowState,
    WindowUnfinished,
    parts_every,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import DatedPane, Window

_TRIES = 20
# Merged windows in the memory cache: a dashboard requests about 12 windows repeatedly.
_MAX_WINDOWS = 16
# Windows whose newest pane is known.
_MAX_NEWEST = 1024
# Loaded panes are merged when they take this much memory.
_LOADED_BYTES = 16 << 20
# Largest number of panes that one query reads, where the next one can continue: about half a second of CPU.
MAX_KEPT = 4096
MAX_KEPT_COMPLETE = 720  # of complete panes
# Most complete panes of a window that are not in a stored merge.
MAX_COMPLETE = 1344


class _Newest(NamedTuple):
    """Newest pane of a window when it was last read, and whether it had changed since the time before."""

    start_s: int
    version: bytes
    changes: bool


class WindowPanes:
    """Reader and cache of panes of windows; several threads may share one object."""

    def __init__(self, store: Store, numerics: Numerics):
        self._store = store
        self._numerics = numerics
        self._cached: LruCache[Any, Any] = LruCache(
            store.settings.pane_cache_bytes, lambda each: int(each.size_of())
        )
        rows = RowReader(numerics, self._cached)
        self._reader = PaneReader(store, numerics, rows)
        self._samples = WindowSamples(store, numerics, self._cached, rows.read)
        self._windows: LruCache[Any, Any] = LruCache(_MAX_WINDOWS)
        # By state, the accumulators of the last window merged of it: a report begins with a query that has those of all others.
        self._accumulators: LruCache[str, Wanted] = LruCache(_MAX_WINDOWS)
        self._newest: LruCache[Any, _Newest] = LruCache(_MAX_NEWEST)
        self._merges = WindowMerges(store, numerics, self._reader, self._cached)

    def none(self, config: ModelConfig, slice_: str, window: Window, alarm: bytes) -> WindowState:
        """Return the name of the state, and no pane."""
        place = WindowPlace(config, slice_, window, None)
        snapshot = self._reader.look(place, [], {})
        name = name_state(config, slice_, snapshot.window, {}, snapshot.marks, alarm)
        return WindowState(name, [], snapshot.window, snapshot.marks)

    def each(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the panes separately."""
        place = WindowPlace(config, slice_, window, wanted)
        loaded: Loaded = {}
        snapshot = self._reader.look(place, [], loaded)
        for _ in range(_TRIES):
            missing = self._merges.missing_panes(place, snapshot.versions.items(), loaded)
            if not missing:
                state = snapshot.state(place, alarm)
                for start, length in state.spans:
                    version, each = loaded[start]
                    each = self._reader.complete(place, each)
                    loaded[start] = version, each
                    self._cached.put((*place.name, ((start, version),)), each)
                    state.panes.append(DatedPane(start, length, each.pane))
                starts = [[start] for start, _ in state.spans]
                if self._with_samples(place, snapshot, state, starts):
                    return state
            while len(missing) > PANES_A_RUN:
                n = self._reader.read(place, _full_runs(missing), snapshot.marks, loaded)
                missing = missing[n:]
            snapshot = self._reader.look(place, missing, loaded)
        raise WindowUnfinished("the window changed faster than it could be read")

    def merged(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the merge of the panes. Results must not change it: it is cached.

        Raises
        ------
        CalibrationInputError
            Of more panes than `MAX_COMPLETE`, everything is wanted.
        WindowUnfinished
            The next query continues, or the window changes too often to be read now.
        """
        place = WindowPlace(config, slice_, window, wanted)
        # Complete panes are read once, unless the next query continues.
        assembly = Assembly(place, stores=wanted is not None)
        snapshot = self._look(place, assembly)
        for _ in range(_TRIES):
            version = snapshot.state(place, b"").version
            merge = self._merge_of(place, snapshot, version)
            missing = [] if merge is not None else self._merges.assemble(assembly, snapshot)
            if wanted is None:
                _check_complete(len(missing))
                assembly.stores = assembly.stores or len(missing) > MAX_KEPT_COMPLETE
            if not missing and merge is None:
                parts = [assembly.merges[part] for part in assembly.parts]
                merge = self._with_sample(place, snapshot, self._merges.merge(place, parts).pane)
                if merge is not None:
                    self._keep(version, wanted, merge)
            if merge is not None:
                return snapshot.state(place, alarm, merged=merge, **assembly.counts)
            snapshot = self._read(place, snapshot, missing, assembly)
        raise WindowUnfinished("the window changed faster than it could be read")

    def _keep(self, version: str, wanted: Wanted, merge: Any) -> None:
        """Cache the merge of a window; not of complete panes, which take more memory than others and are read once."""
        if wanted is not None:
            self._windows.put((version, wanted), merge)
            self._accumulators.put(version, wanted)

    def _merge_of(self, place: WindowPlace, snapshot: WindowSnapshot, version: str) -> Any:
        """Return the cached merge of a window, or what is wanted of a merge with more accumulators; None without either."""
        merge = self._windows.get((version, place.wanted))
        if merge is not None:
            return merge
        known = self._accumulators.get(version)
        if known is None or place.parts is None or SAMPLE in place.parts:
            return None
        merge = self._windows.get((version, known))
        if merge is None or not {*place.parts} <= {*known}:
            return None
        return self._with_sample(place, snapshot, merge.restricted(place.wanted))

    def _look(self, place: WindowPlace, assembly: Assembly) -> WindowSnapshot:
        """Read the state of a window, and with it the newest pane where it has changed between the last two reads."""
        name = (*place.name, place.window)
        last = self._newest.get(name)
        run = [last.start_s] if last is not None and last.changes else []
        snapshot = self._reader.look(place, run, assembly.panes)
        if snapshot.versions:
            start_s = max(snapshot.versions)
            version = snapshot.versions[start_s]
            changes = last is not None and last.start_s == start_s and last.version != version
            self._newest.put(name, _Newest(start_s, version, changes))
        return snapshot

    def parts(
        self,
        config: ModelConfig,
        slice_: str,
        window: Window,
        wanted: Wanted,
        every_s: int,
        check: Callable[[int], None],
    ) -> WindowState:
        """Return the merge of the panes of each part of a window that has data, as one pane.

        Parameters
        ----------
        every_s : length of a part
        check : rejects a number of parts, before their panes are read
        """
        place = WindowPlace(config, slice_, window, wanted)
        return self._divided(Assembly(place, every_s=every_s), check)

    def sides(
        self,
        config: ModelConfig,
        slice_: str,
        window: Window,
        wanted: Wanted,
        last_s: int,
        alarm: bytes = b"",
    ) -> WindowState:
        """Return the panes of the last seconds of a window and those before them, as few merges of neighbouring panes."""
        place = WindowPlace(config, slice_, window, wanted)
        return self._divided(Assembly(place, last_s=last_s), alarm=alarm)

    def _divided(
        self,
        assembly: Assembly,
        check: Callable[[int], None] | None = None,
        alarm: bytes = b"",
    ) -> WindowState:
        """Return the merge of the panes of each part of an assembly."""
        place = assembly.place
        snapshot = self._reader.look(place, [], assembly.panes)
        for _ in range(_TRIES):
            if check is not None and assembly.every_s is not None:
                check(len(parts_every(snapshot.versions, assembly.every_s)))
            missing = self._merges.assemble(assembly, snapshot)
            if not missing:
                state = snapshot.state(place, alarm, **assembly.counts)
                lengths = dict(state.spans)
                for part in assembly.parts:
                    first, last = part.panes[0][0], part.panes[-1][0]
                    pane = assembly.merges[part].pane
                    name = f"{place.config.key}|{place.config.generation}|{place.config.revision}|{place.slice}|"
                    length_s = last + lengths[last] - first
                    state.panes.append(DatedPane(first, length_s, pane, name.encode() + part.state))
                starts = [[start for start, _ in part.panes] for part in assembly.parts]
                if self._with_samples(place, snapshot, state, starts):
                    return state
            snapshot = self._read(place, snapshot, missing, assembly)
        raise WindowUnfinished("the window changed faster than it could be read")

    def _read(
        self, place: WindowPlace, snapshot: WindowSnapshot, missing: list[int], assembly: Assembly
    ) -> WindowSnapshot:
        """Read missing panes, and merge them where they are many; return the state of the last read.

        Raises
        ------
        WindowUnfinished
            They are more than one query may read, and the merges of at least half as many are stored.
        """
        n_bytes, panes = assembly.loaded_bytes, assembly.panes
        most = MAX_KEPT if place.wanted is not None else MAX_KEPT_COMPLETE
        until_n = assembly.n_read + most
        while len(missing) > PANES_A_RUN:
            some = _full_runs(missing, until_n - assembly.n_read)
            n = self._reader.read(place, some, snapshot.marks, panes)
            run, missing = missing[:n], missing[n:]
            assembly.n_read += n
            n_bytes += sum(panes[start][1].n_bytes for start in run if start in panes)
            if n_bytes > _LOADED_BYTES or assembly.n_read >= until_n:
                self._merges.assemble(assembly, snapshot)
                n_bytes, until_n = assembly.loaded_bytes, assembly.n_read + most
                if assembly.n_kept >= most // 2:
                    raise WindowUnfinished
        assembly.n_read += len(missing)
        return self._reader.look(place, missing, panes)

    def _with_sample(self, place: WindowPlace, snapshot: WindowSnapshot, merge: Any) -> Any:
        """Return a merge with its sample; None if the window changed while the sample was read."""
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

    def _with_samples(
        self,
        place: WindowPlace,
        snapshot: WindowSnapshot,
        state: WindowState,
        starts: list[list[int]],
    ) -> bool:
        """Give each pane of a state the sample of its starts; return False if the window changed meanwhile."""
        if not (place.wants_sample and self._samples.are_stored(place.config)):
            return True
        try:
            found = self._samples.parts(
                place.config, place.slice, snapshot.marks, snapshot.versions, starts
            )
        except SampleChangedError:
            return False
        except SampleDamaged as error:
            raise _damaged_sample(place, snapshot, error) from error
        # The cached panes stay as they are: their sample counts for the cache of days.
        state.panes[:] = [
            each._replace(pane=each.pane.copy().replace_sample(sample))
            for each, sample in zip(state.panes, found, strict=True)
        ]
        return True


def _full_runs(panes: list[int], at_most: int | None = None) -> list[int]:
    """Return the panes of full runs, without the last run, which is read with the state; at least one run.

    Parameters
    ----------
    at_most : a run that begins below this number is the last one
    """
    n_runs = (len(panes) - 1) // PANES_A_RUN
    if at_most is not None:
        n_runs = min(n_runs, max(-(-at_most // PANES_A_RUN), 1))
    return panes[: n_runs * PANES_A_RUN]


def _check_complete(n_panes: int) -> None:
    if n_panes > MAX_COMPLETE:
        detail = (
            f"The window has {n_panes} panes to read completely; expected at most {MAX_COMPLETE}. Choose a shorter window, "
            "or wait until its days are merged (CALIBRANT_COMPACT_AFTER): a merged day is one pane."
        )
        raise CalibrationInputError.at("/window", "too_many_panes", detail)


def _damaged_sample(
    place: WindowPlace, snapshot: WindowSnapshot, error: SampleDamaged
) -> PanesDamaged:
    pane_s = place.config.pane_s
    return PanesDamaged(
        [
            described(place, start, snapshot.marks.length(start, pane_s), error)
            for start in error.starts
        ]
    )
