"""Reads of stored panes: their versions and contents of one moment.

A pane is its stored sums together with the rows of its time slice that are not sums yet. Both are read at one moment. Panes are
read in runs, each with the versions of its panes. Where a day is in files (`cold_days`), the needed accumulators are read from these
afterwards: files do not change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from calibrant.core.packing import PackingError
from calibrant.core.routing import ROWS_TOGETHER
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import divided, sums_and_rows
from calibrant_server.workers.queries.versions import panes_in
from calibrant_server.workers.queries.window_state import (
    LoadedPane,
    PanesDamaged,
    Wanted,
    WindowPlace,
    WindowSnapshot,
)
from calibrant_server.workers.store.cold_days import ColdDay, of_files
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import PANE, DayItem, Fields
from calibrant_server.workers.store.key_names import PaneKey, PartitionKeys
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import plain_slice
from calibrant_server.workers.store.watermarks import Watermarks, day_of, fields_of
from calibrant_server.workers.store.windows import Window

log = logging.getLogger(__name__)

# Each pane comes with its tail, of at most `MAX_TAIL_BYTES`, or twice that while sums are damaged: 128 MiB in one reply.
PANES_A_RUN = 16

Loaded = dict[int, tuple[bytes, LoadedPane]]


class PaneReader:
    """Reader of panes; several threads may share one object."""

    def __init__(self, store: Store, numerics: Numerics):
        self._store = store
        self._numerics = numerics

    def look(self, place: WindowPlace, run: list[int], loaded: Loaded) -> WindowSnapshot:
        """Read current versions and marks, and of the same moment a run of panes."""
        config = place.config
        keys, node = self._partition(place)
        reads = ReadTogether()
        reads.hgetall(keys.versions(config.key, config.generation, place.slice))
        reads.hmget(keys.marks(config.key, config.generation), fields_of(place.slice))
        self._add(reads, keys, place, run)
        found, values, *replies = reads.run(node)
        marks = Watermarks.read(values)
        window = marks.widened(place.window)
        versions = panes_in(found, window)
        self._load(place, {start: versions.get(start) for start in run}, replies, marks, loaded)
        return WindowSnapshot(window, versions, marks)

    def read(self, place: WindowPlace, panes: list[int], marks: Watermarks, loaded: Loaded) -> int:
        """Read the first panes, one run, with their versions; return their number."""
        config, run = place.config, panes[:PANES_A_RUN]
        keys, node = self._partition(place)
        reads = ReadTogether()
        reads.hmget(keys.versions(config.key, config.generation, place.slice), run)
        self._add(reads, keys, place, run)
        versions, *replies = reads.run(node)
        self._load(place, dict(zip(run, versions, strict=True)), replies, marks, loaded)
        return len(run)

    def _partition(self, place: WindowPlace) -> tuple[PartitionKeys, Any]:
        partition = self._store.keys.partition_of(place.config.key)
        return self._store.keys.partition(partition), self._store.node(partition)

    @staticmethod
    def _add(reads: ReadTogether, keys: PartitionKeys, place: WindowPlace, run: list[int]) -> None:
        config = place.config
        if run:
            days = [day_of(start) for start in run]
            reads.hmget(keys.cold_days(config.key, config.generation), days)
        for start in run:
            key = PaneKey(config.key, config.generation, place.slice, start)
            _add_parts(reads, keys.pane(key), place.parts)
            reads.hgetall(keys.tail(key))

    def _load(
        self,
        place: WindowPlace,
        versions: Mapping[int, bytes | None],
        replies: list[Any],
        marks: Watermarks,
        loaded: Loaded,
    ) -> None:
        if not versions:
            return
        days, *replies = replies
        cold = self._of_files(place, versions, days)
        damaged = []
        for (start, version), reply, tail, found in zip(
            versions.items(), replies[::2], replies[1::2], cold, strict=True
        ):
            if version is None:
                continue
            try:
                loaded[start] = (version, self.decode(place, start, reply, tail, found))
            except PackingError as error:
                length_s = marks.length(start, place.config.pane_s)
                damaged.append(described(place, start, length_s, error))
        if damaged:
            raise PanesDamaged(damaged)

    def _of_files(
        self, place: WindowPlace, versions: Mapping[int, bytes | None], days: list[bytes | None]
    ) -> list[Fields | PackingError | None]:
        """Return the accumulators of panes that are in files, and None for the others."""
        wanted = [
            (
                None if version is None else ColdDay.read(text),
                DayItem(PANE, place.slice, start),
            )
            for (start, version), text in zip(versions.items(), days, strict=True)
        ]
        return of_files(self._store.keys.files, wanted)

    def decode(
        self,
        place: WindowPlace,
        start: int,
        reply: Any,
        tail: dict[bytes, bytes],
        found: Fields | PackingError | None = None,
    ) -> LoadedPane:
        """Return a pane of the accumulators and the tail that the store has.

        Parameters
        ----------
        found : its accumulators, if they are in a file; or why that cannot be read
        """
        if isinstance(found, PackingError):
            raise found
        if found is not None:
            parts = divided(found)[0]
            if place.parts is not None:
                parts = {name: parts[name] for name in place.parts if name in parts}
        elif place.parts is None:
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
        return self.complete(place, loaded) if is_large else loaded

    def complete(self, place: WindowPlace, loaded: LoadedPane) -> LoadedPane:
        """Return a pane whose sums have its rows, stored sparsely: a window has many.

        One without rows was stored sparsely where it was read. It may be cached, and other queries read it: it is not changed.
        """
        return loaded if loaded.rows is None else self.filled(place, loaded).compacted()

    def filled(self, place: WindowPlace, loaded: LoadedPane) -> LoadedPane:
        """Return a pane whose sums have its rows.

        A pane that has rows yet belongs to one query and is changed.
        """
        if loaded.rows is None:
            return loaded
        spec = self._numerics.spec(place.config)

        def empty() -> Any:
            return self._numerics.of_parts(spec, {}, place.wanted)

        loaded.rows.fill_into(loaded.pane, place.slice, empty)
        return LoadedPane.of(loaded.pane)


def described(place: WindowPlace, start_s: int, length_s: int, error: Exception) -> dict[str, str]:
    """Log a damaged pane, and return slice, times and error."""
    window = Window(start_s, start_s + length_s).to_dict()
    log.error(
        "pane_damaged model=%s slice=%s start=%s error=%s",
        place.config.key, place.slice, window["from"], error,
    )  # fmt: skip
    return {"slice": plain_slice(place.slice), **window, "error": str(error)[:200]}


def _add_parts(reads: ReadTogether, name: str, wanted: Wanted) -> None:
    if wanted is None:
        reads.hgetall(name)
    else:
        reads.hmget(name, wanted)
