"""Moves of old days from the store to files: days that are sealed, merged, and past `CALIBRANT_COLD_AFTER`.

1. A commit notes the names of the files among the spare ones, which are removed after an hour.
2. The file of each slice is written. The partition's entries wait meanwhile: about a second for 32 MiB.
3. A commit removes the panes and samples from the store, names the files instead, and takes them off the spare ones. The
   fencing token rejects it if another worker has taken the partition over.

A kill at any point leaves a slice of a day in the store, or in a file that the store names, and never in both. Versions do not change,
so neither do ETags and cached results. Slices that came back are written again once the day has rested.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from math import inf
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from calibrant_server.workers.lifecycle.compaction import TailFolding
from calibrant_server.workers.store.cold_days import ColdDay, Model, key_of
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import PANE, DayFiles, DayItem, sample_item
from calibrant_server.workers.store.file_store import AT_ONCE, FilesUnavailable, claim_files
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import DAY_S, Watermarks, day_of, pane_starts

log = logging.getLogger(__name__)

# A day with slices that came back rests this long: more delayed labels may follow.
REST_S = 3600
# A file that was written and is not named after this time never will be.
SPARE_S = 3600


@dataclass(frozen=True)
class OldDay:
    """A day of a model in time, with its panes, its files and the watermarks of the model."""

    config: ModelConfig
    marks: dict[bytes, bytes]
    day_s: int
    panes: list[DayItem]
    cold: ColdDay

    @cached_property
    def slices(self) -> dict[str, list[DayItem]]:
        """What the store may have of each slice that is in no file."""
        found: dict[str, list[DayItem]] = {}
        for pane in self.panes:
            if pane.of_slice not in self.cold.files:
                found.setdefault(pane.of_slice, []).append(pane)
        if "" in found:
            found[""] += [sample_item(self.day_s, sealed) for sealed in (False, True)]
        return found

    @property
    def end_s(self) -> int:
        """When the last pane of the day ends."""
        pane_s = self.config.pane_s
        lengths = (self._of(each.slice).length(each.start_s, pane_s) for each in self.panes)
        ends = (each.start_s + length for each, length in zip(self.panes, lengths, strict=True))
        return max(self.day_s + DAY_S, *ends)

    def is_to_move(self, age_s: float, now_s: float, merges: bool) -> bool:
        """Whether the store has slices, and the last pane ended so long ago, is merged and sealed, and is not past its retention."""
        return (
            bool(self.slices)
            and self._of("").kept_from < self.end_s <= now_s - age_s
            and self._is_sealed
            and (not merges or self._is_merged)
        )

    @property
    def _is_sealed(self) -> bool:
        return self.config.label_horizon_s is None or self.end_s <= self._of("").sealed_to

    @property
    def _is_merged(self) -> bool:
        if DAY_S % self.config.pane_s or self.config.pane_s == DAY_S:
            return True
        return all(each.start_s < self._of(each.slice).daily_to for each in self.panes)

    def _of(self, slice_: str) -> Watermarks:
        return Watermarks.of(slice_, self.marks)


class DayMoves:
    """Moves of one partition's old days to files."""

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, folding: TailFolding
    ):
        self._client = store.client
        self._settings = store.settings
        self._node = store.node(keys.partition)
        self._keys = keys
        self._owner_name = store.keys.files_owner
        self._fencing = fencing
        self._folding = folding
        self._sweep_at = 0.0

    def move_days(
        self,
        config: ModelConfig,
        progress: Callable[[], None] = lambda: None,
        until: float = inf,
    ) -> float:
        """Move the old days of a model; return when to look again, in seconds since the epoch, or infinity.

        Parameters
        ----------
        until : monotonic seconds after which no second day is moved

        Raises
        ------
        FilesUnavailable
            Nothing is moved for a while.
        """
        files, now_s = self._keys.files, time.time()
        if files is None or not self._settings.cold_after_s:
            return inf
        if files.place.rest_s:
            return now_s + files.place.rest_s
        next_s = inf
        try:
            for n, (day, rests_to_s) in enumerate(self._old_days(config, now_s)):
                if rests_to_s > now_s:
                    next_s = min(next_s, rests_to_s)
                elif n and time.monotonic() > until:
                    return now_s
                else:
                    self._move(files, day, progress)
        except FilesUnavailable:
            files.place.rest()
            raise
        return next_s

    def _old_days(self, config: ModelConfig, now_s: float) -> Iterator[tuple[OldDay, float]]:
        """Yield the days of a model that are to be moved, each with the time at which it may be."""
        merges, age_s = bool(self._settings.compact_after_s), self._settings.cold_after_s
        for day in self._days(config):
            if day.is_to_move(age_s, now_s, merges):
                changed_s = day.cold.changed_ms / 1000
                yield day, changed_s + REST_S if changed_s else 0.0

    def _days(self, config: ModelConfig) -> list[OldDay]:
        """Return the days of a model, from the first to the last; baselines belong to none."""
        name = (config.key, config.generation)
        marks = self._node.hgetall(self._keys.marks(*name))
        stored = self._node.hgetall(self._keys.cold_days(*name))
        panes: dict[int, list[DayItem]] = {}
        for slice_, starts in pane_starts(self._node, self._keys, name).items():
            for start in starts:
                panes.setdefault(day_of(start), []).append(DayItem(PANE, slice_, start))
        return [
            OldDay(config, marks, day_s, some, self._cold(name, day_s, stored))
            for day_s, some in sorted(panes.items())
        ]

    def _cold(self, name: Model, day_s: int, stored: dict[bytes, bytes]) -> ColdDay:
        found = ColdDay.read(stored.get(str(day_s).encode()))
        return found or ColdDay(_folder(self._keys.namespace, name, day_s))

    def _move(self, files: DayFiles, day: OldDay, progress: Callable[[], None]) -> None:
        """Write the files of a day and replace what they have by their names."""
        name = (day.config.key, day.config.generation)
        starts = sorted({each.start_s for each in day.panes})
        if self._folding.fold(day.config, starts, progress)[1] is not None:
            return  # damaged rows stay where they are
        new = {slice_: token_hex(8) for slice_ in day.slices}
        written = ColdDay(day.cold.folder, new)
        spare = self._keys.spare_files
        self._send(
            lambda commit: commit.set_fields(spare, dict.fromkeys(written.names, _ms(SPARE_S)))
        )
        claim_files(self._client, self._owner_name, files.place)
        slices = list(day.slices)
        for first in range(0, len(slices), AT_ONCE):
            progress()
            some = slices[first : first + AT_ONCE]
            stored = [
                (f"{day.cold.folder}/{new[each]}", self._stored(name, day, each)) for each in some
            ]
            files.place.at_once(lambda each: files.write(*each), stored)
        commit = Commit(self._keys)
        for item in (item for items in day.slices.values() for item in items):
            commit.unlink(key_of(self._keys, name, item))
        text = ColdDay(day.cold.folder, {**day.cold.files, **new}).to_json()
        commit.set_fields(self._keys.cold_days(*name), {str(day.day_s): text})
        commit.drop_fields(spare, written.names)
        self._fencing.send(commit, self._fencing.new_token())
        log.info("day_moved model=%s day=%s files=%d", name[0], _date(day.day_s), len(new))

    def _stored(self, name: Model, day: OldDay, slice_: str) -> dict[DayItem, Any]:
        """Return what the store has of a slice."""
        with self._node.pipeline(transaction=False) as pipe:
            for item in day.slices[slice_]:
                pipe.hgetall(key_of(self._keys, name, item))
            return dict(zip(day.slices[slice_], pipe.execute(), strict=True))

    def sweep(self) -> None:
        """Remove files that no day names, when their time has come.

        A commit marks them first: only the partition's worker removes files.
        """
        files = self._keys.files
        if files is None or files.place.rest_s or time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + self._settings.housekeeping_s
        spare = self._keys.spare_files
        found = self._node.hgetall(spare).items()
        names = [key.decode() for key, at_ms in found if int(at_ms) <= _ms(0)]
        if not names:
            return
        self._send(lambda commit: commit.set_fields(spare, dict.fromkeys(names, "0")))
        try:
            if files.place.owner() is None:
                return  # where there is no marker, nothing would be found
            for each in names:
                files.place.delete(each)
        except FilesUnavailable as error:
            log.warning("files_not_removed error=%s", error)
            return
        self._send(lambda commit: commit.drop_fields(spare, names))

    def _send(self, write: Callable[[Commit], None]) -> None:
        commit = Commit(self._keys)
        write(commit)
        self._fencing.send(commit, self._fencing.new_token())


def _folder(namespace: str, name: Model, day_s: int) -> str:
    tenant, _, model = name[0].partition("/")
    parts = {"tenant": tenant, "model": model, "generation": name[1]}
    path = "/".join(f"{what}={quote(value, safe='')}" for what, value in parts.items())
    return f"{namespace}/{path}/{_date(day_s)}"


def _date(day_s: int) -> str:
    return datetime.fromtimestamp(day_s, UTC).date().isoformat()


def _ms(in_s: float) -> int:
    """Return a time from now, in milliseconds since the epoch."""
    return int((time.time() + in_s) * 1000)
