"""Old days moved to files: sealed, merged, and past `CALIBRANT_COLD_AFTER`.

1. A commit notes a folder among the spare ones, which are removed after an hour.
2. A background thread reads the day and writes its files into the folder. Entries are merged meanwhile.
3. A commit removes the panes and samples from the store, names the files instead, and takes the folder off the spare ones. It is sent
   only if nothing of the day has changed since step 1: versions, samples, rows that are not sums, and files.

A kill at any point leaves the day in the store, or in files that the store names, and never in both. Versions do not change, so neither do
ETags and cached results. A day that is partly in the store again is written again once it has rested; one with a deleted prediction
at once. The new files take the place of the old ones.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import UTC, datetime
from math import inf
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from calibrant.core.packing import PackingError
from calibrant_server.workers.lifecycle.day_state import DayReader, DayState, Name
from calibrant_server.workers.lifecycle.tail_folding import TailFolding
from calibrant_server.workers.store.cold_days import ColdDay, give_up
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import DayFile, DayFiles, packed_day, packed_fields
from calibrant_server.workers.store.file_owner import claim_files
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import DAY_S

log = logging.getLogger(__name__)

# Target of the bytes of one file: a move has them in memory, three times.
FILE_BYTES = 32 << 20
# A day with panes that came back rests this long: more delayed labels may follow.
REST_S = 3600
# A folder that was written and is not named after this time never will be.
SPARE_S = 3600
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 600.0


class DayMoves:
    """Moves of one partition's old days to files, one at a time."""

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
        self._reader = DayReader(self._node, keys)
        self._queue: OrderedDict[tuple[Name, int], ModelConfig] = OrderedDict()
        self._running: tuple[Future[Any], Callable[[Future[Any]], bool]] | None = None
        self._looked: dict[Name, int] = {}
        self._sweep_at = 0.0
        self._failures, self._paused_to = 0, 0.0

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do at once."""
        waits = time.monotonic() < self._paused_to
        return self._running is not None or (bool(self._queue) and not waits)

    def forget_but(self, names: set[Name]) -> None:
        """Forget the models that are not among `names`."""
        for name in self._looked.keys() - names:
            del self._looked[name]

    def examine(self, config: ModelConfig) -> float:
        """Note the days of a model that are to be moved now; return when one that rests is to be, or infinity."""
        if self._keys.files is None or not self._settings.cold_after_s:
            return inf
        name, member = (config.key, config.generation), f"{config.key}|{config.generation}"
        boundary = int((time.time() - self._settings.cold_after_s) // DAY_S)
        is_back = self._node.sismember(self._keys.models_back, member)
        if self._looked.get(name) == boundary and not is_back:
            return inf
        waits_to_s = self._note_days(config, time.time())
        if waits_to_s is None:
            self._looked[name] = boundary
            if is_back:
                commit = Commit(self._keys)
                commit.remove_member(self._keys.models_back, member)
                self._fencing.send(commit, self._fencing.new_token())
            return inf
        return waits_to_s

    def _note_days(self, config: ModelConfig, now_s: float) -> float | None:
        """Queue the old days of a model; return when the first one that rests is to follow, or None if none is left."""
        name = (config.key, config.generation)
        waits: list[float] = []
        is_complete = True
        for day in self._reader.days(config):
            cold = day.cold
            is_to_move = cold is None or cold.back or cold.erased
            if not is_to_move or not day.is_past(self._settings.cold_after_s, now_s):
                continue
            is_complete = False
            if not day.is_settled(merges=bool(self._settings.compact_after_s)):
                continue
            rests_to_s = 0.0 if cold is None or cold.erased else cold.changed_ms / 1000 + REST_S
            if rests_to_s <= now_s:
                self._queue[name, day.day_s] = config
            else:
                waits.append(rests_to_s)
        return None if is_complete else min(waits, default=inf)

    def step(self, progress: Callable[[], None] = lambda: None) -> bool:
        """Do what can be done without waiting; return whether panes of the store changed."""
        files = self._keys.files
        if files is None:
            return False
        has_changed = False
        if self._running is not None and self._running[0].done():
            future, finish = self._running
            self._running = None
            has_changed = finish(future)
        if self._running is None:
            self._sweep(files)
        if self._queue and time.monotonic() >= self._paused_to:
            self._start(files, progress)
        return has_changed

    def finish_all(self) -> bool:
        """Do everything that is to be done, and wait for it; return whether panes of the store changed."""
        has_changed = self.step()
        while self.is_busy:
            time.sleep(0.001)
            has_changed |= self.step()
        return has_changed

    def _start(self, files: DayFiles, progress: Callable[[], None]) -> None:
        """Begin the moves of days until one runs."""
        while self._queue and self._running is None:
            progress()
            (name, day_s), config = self._queue.popitem(last=False)
            state = self._reader.state(name, day_s)
            if state.has_rows:
                starts = sorted({each.start_s for each in state.panes})
                if self._folding.fold(config, starts, progress)[1] is not None:
                    continue  # damaged rows stay where they are
                state = self._reader.state(name, day_s)
            cold = state.cold
            if state.panes and (cold is None or cold.back or cold.erased):
                self._begin(files, config, day_s, state)

    def _begin(self, files: DayFiles, config: ModelConfig, day_s: int, state: DayState) -> None:
        folder = _folder(self._keys.namespace, (config.key, config.generation), day_s)
        commit = Commit(self._keys)
        commit.set_fields(self._keys.spare_files, {folder: str(_ms(SPARE_S))})
        self._fencing.send(commit, self._fencing.new_token())

        def finish(done: Future[tuple[DayFile, ...]]) -> bool:
            try:
                return self._swap(config, day_s, state, folder, done.result())
            except FilesUnavailable as error:
                self._pause(error)
                self._queue[(config.key, config.generation), day_s] = config
            except PackingError as error:
                day = _date(day_s)
                log.error("day_not_moved model=%s day=%s error=%s", config.key, day, error)
            return False

        written = files.place.in_background(
            lambda: self._written(files, (config.key, config.generation), state, folder)
        )
        self._running = written, finish

    def _written(
        self, files: DayFiles, name: Name, state: DayState, folder: str
    ) -> tuple[DayFile, ...]:
        """Write the files of a day, in a background thread."""
        claim_files(self._client, self._owner_name, files.place)
        packed: dict[Any, bytes] = {}
        written: list[DayFile] = []

        def put() -> None:
            file, data = packed_day(f"{folder}/{len(written)}", packed)
            files.place.put(file.name, data)
            written.append(file)
            packed.clear()

        for item, fields in self._reader.fields(name, state):
            packed[item] = packed_fields(fields)
            if sum(map(len, packed.values())) >= FILE_BYTES:
                put()
        if packed:
            put()
        return tuple(written)

    def _pause(self, error: FilesUnavailable) -> None:
        pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._paused_to = time.monotonic() + pause_s
        log.warning("days_not_moved error=%s", error)

    def _swap(
        self,
        config: ModelConfig,
        day_s: int,
        state: DayState,
        folder: str,
        written: tuple[DayFile, ...],
    ) -> bool:
        """Replace what files have by their names, unless the day has changed; return whether it was done."""
        self._failures = 0
        name = (config.key, config.generation)
        is_spare = self._node.hget(self._keys.spare_files, folder) not in (None, b"0")
        if not is_spare:
            self._queue[name, day_s] = config
            return False
        if self._reader.state(name, day_s) != state:
            return False  # what changed makes the model due again
        commit = Commit(self._keys)
        for item in state.in_store:
            commit.unlink(self._reader.key(name, item))
        commit.set_fields(self._keys.cold_days(*name), {str(day_s): ColdDay(written).to_json()})
        if state.cold is not None:
            give_up(commit, self._keys, state.cold.files, _ms(self._settings.cold_keep_s))
        commit.drop_fields(self._keys.spare_files, [folder])
        self._fencing.send(commit, self._fencing.new_token())
        log.info("day_moved model=%s day=%s files=%d", config.key, _date(day_s), len(written))
        return True

    def _sweep(self, files: DayFiles) -> None:
        """Remove folders that no day names, when their time has come.

        A commit marks them first: a worker that stopped before it named one can then name it no more.
        """
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + self._settings.housekeeping_s
        spare = self._node.hgetall(self._keys.spare_files).items()
        folders = [key.decode() for key, at_ms in spare if int(at_ms) <= _ms(0)]
        if not folders:
            return
        commit = Commit(self._keys)
        commit.set_fields(self._keys.spare_files, dict.fromkeys(folders, "0"))
        self._fencing.send(commit, self._fencing.new_token())
        self._running = (
            files.place.in_background(lambda: [*_deleted(files, folders)]),
            lambda done: self._note_deleted(folders, done.result()),
        )

    def _note_deleted(self, folders: list[str], deleted: list[str]) -> bool:
        if len(deleted) < len(folders):
            # Moves go on meanwhile: the first one marks a place that has no marker yet.
            self._sweep_at = max(self._sweep_at, time.monotonic() + FIRST_PAUSE_S)
        if deleted:
            commit = Commit(self._keys)
            commit.drop_fields(self._keys.spare_files, deleted)
            self._fencing.send(commit, self._fencing.new_token())
        return False


def _deleted(files: DayFiles, folders: list[str]) -> Iterable[str]:
    """Delete folders until the place does not respond; yield those that are gone."""
    for folder in folders:
        try:
            files.place.delete(folder)
        except FilesUnavailable:
            return
        yield folder


def _folder(namespace: str, name: Name, day_s: int) -> str:
    tenant, _, model = name[0].partition("/")
    parts = {"tenant": tenant, "model": model, "generation": name[1]}
    path = "/".join(f"{what}={quote(value, safe='')}" for what, value in parts.items())
    return f"{namespace}/{path}/{_date(day_s)}-{token_hex(8)}"


def _date(day_s: int) -> str:
    return datetime.fromtimestamp(day_s, UTC).date().isoformat()


def _ms(in_s: float) -> int:
    """Return a time from now, in milliseconds since the epoch."""
    return int((time.time() + in_s) * 1000)
