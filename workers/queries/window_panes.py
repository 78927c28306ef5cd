"""Panes of a window, all from one moment: separately, or merged.

The versions of all panes are read first, then panes in runs (`pane_reader`), each with its version. The last run reads all
versions again; panes that changed meanwhile are read again, until all loaded panes have the last versions. `window_merges`
merges them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrant.accumulators.sample import WINDOW_BYTES
from calibrant.core.errors import CalibrationInputError
from calibrant.results.reads import SAMPLE
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import SampleChangedError, merged_sample
from calibrant_server.workers.queries.pane_reader import PANES_A_RUN, PaneReader, described
from calibrant_server.workers.queries.versions import name_state
from calibrant_server.workers.queries.window_merges import Assembly, WindowMerges
from calibrant_server.workers.queries.window_samples import SampleDamaged, WindowSamples
from calibrant_server.workers.queries.window_state import (
    PanesDamaged,
    Wanted,
    WindowChanging,
    WindowPart,
    WindowPlace,
    WindowSnapshot,
    WindowState,
    parts_every,
    parts_of,
    parts_of_sides,
    single_panes,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.lru_cache import LruCache
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import DatedPane, Window

_TRIES = 20
# Merged windows in the memory cache: a dashboard requests about 12 windows repeatedly.
_MAX_WINDOWS = 16
# Loaded panes are merged when they take this much memory.
_LOADED_BYTES = 16 << 20
# Panes of a window that one query reads: a year of hours, about 3 s of CPU; and of complete panes, about 1 s.
MAX_PANES = 8784
MAX_COMPLETE = 1344


class WindowPanes:
    """Reader and cache of panes of windows; several threads may share one object."""

    def __init__(self, store: Store, numerics: Numerics):
        self._store = store
        self._numerics = numerics
        self._cached: LruCache[Any, Any] = LruCache(
            store.settings.pane_cache_bytes, lambda each: int(each.size_of())
        )
        self._reader = PaneReader(store, numerics)
        self._samples = WindowSamples(store, numerics, self._cached)
        # By state, the accumulators of the last merge of it, and the merge.
        self._windows: LruCache[str, tuple[Wanted, Any]] = LruCache(_MAX_WINDOWS)
        self._merges = WindowMerges(numerics, self._reader, self._cached)

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
        return self._divided(Assembly(place, lambda now: single_panes(now.versions)), alarm)

    def merged(
        self, config: ModelConfig, slice_: str, window: Window, wanted: Wanted, alarm: bytes = b""
    ) -> WindowState:
        """Return the merge of the panes. Results must not change it: it is cached.

        Raises
        ------
        CalibrationInputError
            It has too many panes.
        WindowChanging
        """
        place = WindowPlace(config, slice_, window, wanted)
        assembly = Assembly(place, lambda now: parts_of(now.versions))

        def known(snapshot: WindowSnapshot) -> WindowState | None:
            merge = self._merge_of(place, snapshot, snapshot.state(place, b"").version)
            return None if merge is None else snapshot.state(place, alarm, merged=merge)

        def finished(snapshot: WindowSnapshot) -> WindowState | None:
            parts = [assembly.merges[part] for part in assembly.parts]
            merge = self._with_sample(place, snapshot, self._merges.merge(place, parts).pane)
            # Complete panes take more memory than others and are read once.
            if merge is not None and wanted is not None:
                self._windows.put(snapshot.state(place, b"").version, (wanted, merge))
            return None if merge is None else snapshot.state(place, alarm, merged=merge)

        return self._assembled(assembly, finished, known)

    def _merge_of(self, place: WindowPlace, snapshot: WindowSnapshot, version: str) -> Any:
        """Return the cached merge of a window, or what is wanted of a merge with more accumulators; None without either."""
        cached = self._windows.get(version)
        if cached is None or cached[0] == place.wanted:
            return cached and cached[1]
        known, merge = cached
        if place.parts is None or SAMPLE in place.parts or not {*place.parts} <= {*(known or ())}:
            return None
        return self._with_sample(place, snapshot, merge.restricted(place.wanted))

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

        def divide(now: WindowSnapshot) -> list[WindowPart]:
            parts = parts_every(now.versions, every_s)
            check(len(parts))
            return parts

        return self._divided(Assembly(WindowPlace(config, slice_, window, wanted), divide))

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
        return self._divided(
            Assembly(place, lambda now: parts_of_sides(now, config, last_s)), alarm
        )

    def _divided(self, assembly: Assembly, alarm: bytes = b"") -> WindowState:
        """Return the merge of the panes of each part of an assembly."""
        place = assembly.place
        config = place.config
        of = f"{config.key}|{config.generation}|{config.revision}|{place.slice}|".encode()

        def finished(snapshot: WindowSnapshot) -> WindowState | None:
            state = snapshot.state(place, alarm)
            lengths = dict(state.spans)
            for part in assembly.parts:
                first, last = part.panes[0][0], part.panes[-1][0]
                pane, length_s = assembly.merges[part].pane, last + lengths[last] - first
                state.panes.append(DatedPane(first, length_s, pane, of + part.state))
            starts = [[start for start, _ in part.panes] for part in assembly.parts]
            return state if self._with_samples(place, snapshot, state, starts) else None

        return self._assembled(assembly, finished)

    def _assembled(
        self,
        assembly: Assembly,
        finished: Callable[[WindowSnapshot], WindowState | None],
        known: Callable[[WindowSnapshot], WindowState | None] = lambda snapshot: None,
    ) -> WindowState:
        """Read a window until all of it is of one moment.

        Parameters
        ----------
        finished : makes the state of an assembly that is complete; None if the window has changed meanwhile
        known : returns a state for which nothing is to be read
        """
        snapshot = self._reader.look(assembly.place, [], assembly.panes)
        for _ in range(_TRIES):
            _check_panes(snapshot, assembly.place.wanted)
            state = known(snapshot)
            missing = self._merges.assemble(assembly, snapshot) if state is None else []
            if state is None and not missing:
                state = finished(snapshot)
            if state is not None:
                return state
            snapshot = self._read(snapshot, missing, assembly)
        raise WindowChanging("the window changed faster than it could be read")

    def _read(
        self, snapshot: WindowSnapshot, missing: list[int], assembly: Assembly
    ) -> WindowSnapshot:
        """Read missing panes, and merge them where they take much memory; return the state of the last read."""
        place, panes = assembly.place, assembly.panes
        n_bytes = assembly.loaded_bytes
        while len(missing) > PANES_A_RUN:
            n = self._reader.read(place, missing, snapshot.marks, panes)
            run, missing = missing[:n], missing[n:]
            n_bytes += sum(panes[start][1].n_bytes for start in run if start in panes)
            if n_bytes > _LOADED_BYTES:
                self._merges.assemble(assembly, snapshot)
                n_bytes = assembly.loaded_bytes
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


def _check_panes(snapshot: WindowSnapshot, wanted: Wanted) -> None:
    """Reject a window with more panes than one query reads, and name the window that is accepted."""
    n_panes, most = len(snapshot.versions), MAX_PANES if wanted is not None else MAX_COMPLETE
    if n_panes <= most:
        return
    first = Window([*snapshot.versions][-most], snapshot.window.to_s).to_dict()["from"]
    detail = (
        f"The window has {n_panes} panes; expected at most {most}. Choose a shorter window, which may begin at {first}, "
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
