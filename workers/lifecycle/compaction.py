"""Panes of hours merged into panes of days once they are old.

One commit merges a day of a slice. It removes the hours, writes the day and moves the slice's watermark, before which panes
are days. A kill before or after the commit leaves nothing half done. Results before and after depend on the same sums; only
fewer window boundaries are available.

Rows that are not sums yet become sums first, since they feed panes of all slices. Samples are stored by day from the start.
One commit removes the rows of a time slice, writes every pane that they feed and adds them to the sample of their day. Panes keep
their versions, because their content is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from calibrant.core.packing import PackingError
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.ingest.cached_pane import UnreadablePane, total_field
from calibrant_server.workers.ingest.pane_cache import PaneCache
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.state_cache import StateCache
from calibrant_server.workers.ingest.stored_panes import divided
from calibrant_server.workers.store.cold_days import ColdDays
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import pane_item
from calibrant_server.workers.store.key_names import (
    LAST_CHANGE,
    SOURCE_FIELD,
    PaneKey,
    PartitionKeys,
)
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import (
    DAY_S,
    SEALED_TO,
    Watermarks,
    daily_to,
    pane_starts,
)


class TailFolding:
    """Maker of sums of the rows of one partition's models."""

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, numerics: Numerics
    ):
        self._keys = keys
        self._fencing = fencing
        self._cache = PaneCache(store, keys, numerics, StateCache(0))

    def fold(
        self, config: ModelConfig, starts: list[int], progress: Callable[[], None]
    ) -> tuple[int, int | None]:
        """Make sums of the rows of time slices; return the number of time slices that had rows.

        Returns
        -------
        number of time slices whose rows became sums; start of the first one that is damaged, which ends the work, or None
        """
        n_folded = 0
        self._cache.forget()
        for start in starts:
            progress()
            try:
                n_folded += self._fold(config, start)
            except UnreadablePane:
                log.exception("rows_not_folded model=%s start_s=%d", config.key, start)
                return n_folded, start
        return n_folded, None

    def _fold(self, config: ModelConfig, start_s: int) -> bool:
        key = PaneKey(config.key, config.generation, ALL_ROWS, start_s)
        self._cache.fetch((), [key], {(config.key, config.generation): config})
        if not self._cache.fold(key, config):
            return False
        token, commit = self._fencing.new_token(), Commit(self._keys)
        self._cache.write(commit, token)
        self._fencing.send(commit, token)
        self._cache.trim()
        return True


log = logging.getLogger(__name__)


class Compaction:
    """Compactor of the old panes of one partition's models."""

    def __init__(
        self,
        node: Any,
        keys: PartitionKeys,
        fencing: FencingToken,
        numerics: Numerics,
        folding: TailFolding,
    ):
        self._node = node
        self._keys = keys
        self._fencing = fencing
        self._numerics = numerics
        self._folding = folding
        self._cold = ColdDays(node, keys)
        self.is_blocked = False

    def merge_days(
        self, config: ModelConfig, until_s: float, progress: Callable[[], None] = lambda: None
    ) -> int:
        """Merge the days that ended by `until_s`, and are sealed if the model seals cohorts; return their number.

        `is_blocked` is then whether an unreadable pane keeps a day from being merged.
        """
        self.is_blocked = False
        self._cold.forget()
        if DAY_S % config.pane_s or config.pane_s == DAY_S:
            return 0
        model = (config.key, config.generation)
        marks = self._node.hgetall(self._keys.marks(*model))
        if config.label_horizon_s is not None:
            until_s = min(until_s, int(marks.get(SEALED_TO.encode(), 0)))
        panes = pane_starts(self._node, self._keys, model)
        to_s = int(until_s // DAY_S) * DAY_S
        to_s = self._fold(config, marks, panes.get(ALL_ROWS, []), to_s, progress)
        n_days = 0
        for slice_, starts in panes.items():
            from_s = Watermarks.of(slice_, marks).daily_to
            for day_s, hours in _days(starts, from_s, to_s):
                progress()
                if not self._merge(config, slice_, day_s, hours):
                    self.is_blocked = True
                    break
                n_days += 1
        return n_days

    def _fold(
        self,
        config: ModelConfig,
        marks: dict[bytes, bytes],
        starts: list[int],
        to_s: int,
        progress: Callable[[], None],
    ) -> int:
        """Make sums of the rows of time slices before `to_s`; return the end of the last day without rows."""
        from_s = Watermarks.of(ALL_ROWS, marks).daily_to
        starts = [each for each in starts if from_s <= each < to_s]
        damaged_s = self._folding.fold(config, starts, progress)[1]
        self.is_blocked = damaged_s is not None
        return to_s if damaged_s is None else damaged_s - damaged_s % DAY_S

    def _merge(self, config: ModelConfig, slice_: str, day_s: int, starts: list[int]) -> bool:
        """Merge one day's panes into one; return False and do nothing if one of them is unreadable."""
        spec = self._numerics.spec(config)
        panes = [PaneKey(config.key, config.generation, slice_, start) for start in starts]
        day = self._numerics.empty(spec)
        fields: dict[str, bytes] = {}
        try:
            for key, found in zip(panes, self._read(panes), strict=True):
                parts, sources = divided(found)
                fields |= {
                    total_field(name.removeprefix(SOURCE_FIELD), key.start_s): value
                    for name, value in sources.items()
                }
                if parts:
                    day.merge(self._numerics.of_parts(spec, parts))
        except PackingError:
            log.exception("day_not_merged model=%s", config.key)
            return False
        self._write(config, slice_, day_s, panes, {**day.parts(), **fields})
        return True

    def _read(self, panes: list[PaneKey]) -> list[dict[bytes, bytes]]:
        with self._node.pipeline(transaction=False) as pipe:
            for key in panes:
                pipe.hgetall(self._keys.pane(key))
            found: list[dict[bytes, bytes]] = pipe.execute()
        model = (panes[0].model, panes[0].generation)
        in_files = self._cold.fields([(model, pane_item(key)) for key in panes])
        for at, fields in enumerate(in_files):
            if isinstance(fields, PackingError):
                raise fields
            found[at] = found[at] if fields is None else fields
        return found

    def _write(
        self,
        config: ModelConfig,
        slice_: str,
        day_s: int,
        panes: list[PaneKey],
        fields: dict[str, bytes],
    ) -> None:
        model = (config.key, config.generation)
        token, commit = self._fencing.new_token(), Commit(self._keys)
        versions = self._keys.versions(*model, slice_)
        self._cold.bring_back(commit, [(model, pane_item(key)) for key in panes])
        for key in panes:
            commit.unlink(self._keys.pane(key))
        commit.drop_fields(versions, [str(key.start_s) for key in panes])
        if fields:
            commit.set_fields(self._keys.pane(PaneKey(*model, slice_, day_s)), fields)
            commit.set_fields(versions, {str(day_s): token})
        commit.set_fields(versions, {LAST_CHANGE: token})
        commit.set_fields(self._keys.marks(*model), {daily_to(slice_): str(day_s + DAY_S)})
        self._fencing.send(commit, token)


def _days(starts: list[int], from_s: int, until_s: int) -> Iterator[tuple[int, list[int]]]:
    """Return days with hourly panes, oldest first, each with the starts of its panes."""
    days: dict[int, list[int]] = {}
    for start in starts:
        if from_s <= start < until_s:
            days.setdefault(start - start % DAY_S, []).append(start)
    yield from days.items()
