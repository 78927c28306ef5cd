"""Old days moved to files: sealed, merged, and past `CALIBRANT_COLD_AFTER`.

1. A commit notes the name of the file among the spare ones, which are removed after an hour.
2. A background thread reads the day, writes the file, reads it back and compares it. Entries are merged meanwhile.
3. A commit removes the panes and samples from the store, names the file instead, and takes it off the spare ones. It is sent only if
   nothing of the day has changed since step 1: versions, samples, rows that are not sums, and files.

A kill at any point leaves the day in the store, or in a file that the store names, and never in both. Versions do not change, so neither do
ETags and cached results. A day of which something came back to the store is moved again once it has rested; one with a deleted prediction
at once. The new file takes the place of the old one.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex
from urllib.parse import quote

from calibrant.core.packing import PackingError
from calibrant_server.workers.lifecycle.day_state import DayReader, DayState, Name
from calibrant_server.workers.lifecycle.tail_folding import TailFolding
from calibrant_server.workers.store.cold_days import (
    ColdDay,
    give_up,
)
from calibrant_server.workers.store.cold_files import ColdFiles
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import (
    PANE,
    DayFile,
    DayItem,
    StoredItem,
    write_day,
)
from calibrant_server.workers.store.file_owner import FileOwner
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.keys import LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import DAY_S, Watermarks

log = logging.getLogger(__name__)

# Target of the bytes of one file: a move has them in memory, twice.
FILE_BYTES = 32 << 20
# Days that one partition moves at the same time.
MAX_MOVES = 2
# A day with panes that came back rests this long: more delayed labels may follow.
REST_S = 3600
# A file that was written and is not named after this time never will be.
SPARE_S = 3600
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 600.0


@dataclass(frozen=True)
class Written:
    """A file that was written.

    Attributes
    ----------
    items : what it has
    replaced : the file of which it takes the place
    left : what is in the store still, because the file would be too large
    """

    file: DayFile
    items: list[DayItem]
    replaced: DayFile | None
    left: frozenset[DayItem]


@dataclass(frozen=True)
class Move:
    """A day on its way."""

    config: ModelConfig
    day_s: int
    state: DayState
    name: str
    future: Future[Written]


@dataclass(frozen=True)
class _Place:
    """A day of a model in time, with its panes and the watermarks of the model."""

    config: ModelConfig
    marks: dict[bytes, bytes]
    day_s: int
    panes: list[DayItem]

    @property
    def end_s(self) -> int:
        ends = [
            each.start_s + self._of(each.slice).length(each.start_s, self.config.pane_s)
            for each in self.panes
        ]
        return max(self.day_s + DAY_S, *ends)

    def is_past(self, age_s: float, now_s: float) -> bool:
        """Whether the last pane ended this long ago, and is not past its retention."""
        return self._of("").kept_from < self.end_s <= now_s - age_s

    def is_settled(self, merges: bool) -> bool:
        """Whether the day is sealed, if the model seals cohorts, and merged, if hours are merged into days."""
        if self.config.label_horizon_s is not None and self.end_s > self._of("").sealed_to:
            return False
        if not merges or DAY_S % self.config.pane_s or self.config.pane_s == DAY_S:
            return True
        return all(each.start_s < self._of(each.slice).daily_to for each in self.panes)

    def _of(self, slice_: str) -> Watermarks:
        return Watermarks.of(slice_, self.marks)


class DayMoves:
    """Moves of one partition's old days to files, a few at a time."""

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, folding: TailFolding
    ):
        self._settings = store.settings
        self._node = store.node(keys.partition)
        self._keys = keys
        self._fencing = fencing
        self._folding = folding
        self._reader = DayReader(self._node, keys)
        self._owner = FileOwner(store.client, store.keys)
        self._queue: OrderedDict[Name, ModelConfig] = OrderedDict()
        self._resting: dict[Name, tuple[float, ModelConfig]] = {}
        self._days: list[tuple[ModelConfig, int]] = []
        self._moves: list[Move] = []
        self._complete: dict[Name, int] = {}
        self._removal: tuple[list[str], Future[list[str]]] | None = None
        self._sweep_at = 0.0
        self._failures, self._paused_to = 0, 0.0

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do at once."""
        waits = time.monotonic() < self._paused_to
        return bool(self._moves) or self._removal is not None or (
            bool(self._queue or self._days) and not waits
        )  # fmt: skip

    def examine(self, configs: Iterable[ModelConfig]) -> None:
        """Look for old days soon: of models whose next day is old enough, and of those to which something came back."""
        if self._keys.files is None or not self._settings.cold_after_s:
            return
        back = self._node.smembers(self._keys.models_back)
        boundary = self._boundary(time.time())
        for config in configs:
            name = (config.key, config.generation)
            if self._complete.get(name) != boundary or "|".join(name).encode() in back:
                self._queue[name] = config

    def forget_but(self, names: set[Name]) -> None:
        """Forget the models that are not among `names`."""
        for name in self._complete.keys() - names:
            del self._complete[name]

    def step(self, progress: Callable[[], None] = lambda: None) -> bool:
        """Do what can be done without waiting; return whether panes of the store changed."""
        files = self._keys.files
        if files is None:
            return False
        try:
            has_changed = self._finish()
            self._sweep(files)
            if time.monotonic() >= self._paused_to:
                self._start(files, progress)
        except BaseException:
            self._moves.clear()
            raise
        return has_changed

    def finish_all(self) -> bool:
        """Do everything that is to be done, and wait for it; return whether panes of the store changed."""
        has_changed = self.step()
        while self.is_busy:
            time.sleep(0.001)
            has_changed |= self.step()
        return has_changed

    def _start(self, files: ColdFiles, progress: Callable[[], None]) -> None:
        now_s = time.time()
        for name, (at_s, config) in list(self._resting.items()):
            if at_s <= now_s:
                del self._resting[name]
                self._queue[name] = config
        while len(self._moves) < MAX_MOVES and (self._days or self._queue):
            progress()
            if self._days:
                self._begin(files, *self._days.pop(0), progress)
            else:
                _, config = self._queue.popitem(last=False)
                self._days = [(config, day_s) for day_s in self._old_days(config, now_s)]

    def _old_days(self, config: ModelConfig, now_s: float) -> list[int]:
        """Return the days of a model that are to be moved now."""
        name = (config.key, config.generation)
        marks = self._node.hgetall(self._keys.marks(*name))
        stored = self._node.hgetall(self._keys.cold_days(*name))
        found, is_complete = [], True
        for day_s, panes in sorted(self._reader.starts(name).items()):
            cold = ColdDay.read(stored.get(str(day_s).encode()))
            place = _Place(config, marks, day_s, panes)
            if (cold is not None and not cold.back and not cold.erased) or not place.is_past(
                self._settings.cold_after_s, now_s
            ):
                continue
            is_complete = False
            rests_to_s = 0.0 if cold is None or cold.erased else cold.changed_ms / 1000 + REST_S
            if not place.is_settled(merges=bool(self._settings.compact_after_s)):
                continue
            if rests_to_s > now_s:
                self._resting[name] = (rests_to_s, config)
            else:
                found.append(day_s)
        if is_complete:
            self._note_complete(name, now_s)
        return found

    def _note_complete(self, name: Name, now_s: float) -> None:
        """Note that no day of a model is to be moved before the next one is old enough."""
        self._complete[name] = self._boundary(now_s)
        if self._node.sismember(self._keys.models_back, "|".join(name)):
            commit = Commit(self._keys)
            commit.remove_member(self._keys.models_back, "|".join(name))
            self._fencing.send(commit, self._fencing.new_token())

    def _boundary(self, now_s: float) -> int:
        """Return how many days are past the age at which they are moved."""
        return int((now_s - self._settings.cold_after_s) // DAY_S)

    def _begin(
        self, files: ColdFiles, config: ModelConfig, day_s: int, progress: Callable[[], None]
    ) -> None:
        name = (config.key, config.generation)
        state = self._reader.state(name, day_s)
        if state.has_rows:
            starts = sorted({each.start_s for each in state.panes})
            if self._folding.fold(config, starts, progress)[1] is not None:
                return  # damaged rows stay where they are
            state = self._reader.state(name, day_s)
        if not state.panes or any(
            move.config.key == config.key and move.day_s == day_s for move in self._moves
        ):
            return
        file_name = _file_name(self._keys.namespace, name, day_s)
        commit = Commit(self._keys)
        commit.set_fields(self._keys.spare_files, {file_name: str(_ms(SPARE_S))})
        self._fencing.send(commit, self._fencing.new_token())
        future = files.in_background(lambda: self._write(files, config, day_s, state, file_name))
        self._moves.append(Move(config, day_s, state, file_name, future))

    def _write(
        self, files: ColdFiles, config: ModelConfig, day_s: int, state: DayState, file_name: str
    ) -> Written:
        """Write the file of a day, in a background thread."""
        self._owner.ensure()
        name = (config.key, config.generation)
        items, n_needed, replaced = _chosen(files, state)
        marks = self._node.hgetall(self._keys.marks(*name))
        stored: list[StoredItem] = []
        n_bytes = 0
        for item, fields in self._reader.fields(name, items, state.cold):
            length_s = Watermarks.of(item.slice, marks).length(item.start_s, config.pane_s)
            to_s = item.start_s + (length_s if item.kind == PANE else DAY_S)
            version = state.panes.get(item) or fields.get(LAST_CHANGE.encode(), b"")
            stored.append(StoredItem(item, to_s, version, fields))
            n_bytes += stored[-1].n_bytes
            if n_bytes >= FILE_BYTES and len(stored) >= n_needed:
                break
        about = {
            "calibrant.model": config.key,
            "calibrant.generation": config.generation,
            "calibrant.day": _date(day_s),
        }
        file = files.write(file_name, write_day(stored, about))
        written = [each.item for each in stored]
        return Written(file, written, replaced, frozenset(items[len(written) :]))

    def _finish(self) -> bool:
        """Commit the moves whose files are written; return whether there were any."""
        done = [move for move in self._moves if move.future.done()]
        self._moves = [move for move in self._moves if not move.future.done()]
        has_changed = False
        for move in done:
            try:
                written = move.future.result()
            except FilesUnavailable as error:
                self._pause(error)
                self._queue[move.config.key, move.config.generation] = move.config
                continue
            except PackingError as error:
                log.error(
                    "day_not_moved model=%s day=%s error=%s",
                    move.config.key,
                    _date(move.day_s),
                    error,
                )
                continue
            self._failures = 0
            has_changed |= self._swap(move, written)
        return has_changed

    def _pause(self, error: FilesUnavailable) -> None:
        pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._paused_to = time.monotonic() + pause_s
        log.warning("days_not_moved error=%s", error)

    def _swap(self, move: Move, written: Written) -> bool:
        """Replace what a file has by its name, unless the day has changed; return whether it was done."""
        name = (move.config.key, move.config.generation)
        is_spare = self._node.hget(self._keys.spare_files, move.name) not in (None, b"0")
        if not is_spare or self._reader.state(name, move.day_s) != move.state:
            self._resting[name] = (time.time() + self._settings.housekeeping_s, move.config)
            return False
        cold = move.state.cold or ColdDay(())
        commit = Commit(self._keys)
        for item in written.items:
            if not cold.files or item in cold.back:
                commit.unlink(self._reader.key(name, item))
        back = (cold.back - set(written.items)) | written.left
        gone = () if written.replaced is None else (written.replaced,)
        day = replace(
            cold,
            files=(*(file for file in cold.files if file not in gone), written.file),
            back=back & (set(move.state.panes) | set(move.state.samples)),
            changed_ms=0,
        )
        day = replace(day, erased=cold.erased and bool(day.back))
        commit.set_fields(self._keys.cold_days(*name), {str(move.day_s): day.to_json()})
        give_up(commit, self._keys, gone, _ms(self._settings.cold_keep_s))
        commit.drop_fields(self._keys.spare_files, [move.name])
        self._fencing.send(commit, self._fencing.new_token())
        if day.back:
            self._queue[name] = move.config
        log.info(
            "day_moved model=%s day=%s items=%d bytes=%d",
            move.config.key, _date(move.day_s), len(written.items), written.file.n_bytes,
        )  # fmt: skip
        return True

    def _sweep(self, files: ColdFiles) -> None:
        """Remove files that no day names, when their time has come.

        A commit marks them first: a worker that stopped before it named one can then name it no more.
        """
        if self._removal is not None:
            names, future = self._removal
            if not future.done():
                return
            self._removal = None
            removed = future.result()
            if removed:
                commit = Commit(self._keys)
                commit.drop_fields(self._keys.spare_files, removed)
                self._fencing.send(commit, self._fencing.new_token())
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + self._settings.housekeeping_s
        own = {move.name for move in self._moves}
        spare = {
            key.decode(): int(at) for key, at in self._node.hgetall(self._keys.spare_files).items()
        }
        names = [each for each, at_ms in spare.items() if at_ms <= _ms(0) and each not in own]
        if not names:
            return
        unmarked = {each: "0" for each in names if spare[each]}
        if unmarked:
            commit = Commit(self._keys)
            commit.set_fields(self._keys.spare_files, unmarked)
            self._fencing.send(commit, self._fencing.new_token())
        self._removal = (names, files.in_background(lambda: _removed(files, names)))


def _chosen(files: ColdFiles, state: DayState) -> tuple[list[DayItem], int, DayFile | None]:
    """Return what the next file of a day is to have, how much of it at least, and the file that it replaces.

    A day without files: everything. Else the first file of which something came back, and what came back and is in no file.
    """
    every = [*state.samples, *state.panes]
    cold = state.cold
    if cold is None:
        return sorted(every), 1, None
    in_files = {file: files.items(file) for file in cold.files}
    unfiled = cold.back - {item for items in in_files.values() for item in items}
    stale = [file for file, items in in_files.items() if cold.back & set(items)]
    if not stale and (not unfiled or cold.erased):
        stale = list(cold.files)[:1]
    if not stale:
        return sorted(unfiled & set(every)), 1, None
    replaced = stale[0]
    here = [each for each in in_files[replaced] if each in state.panes or each.kind != PANE]
    return [*sorted(here), *sorted(unfiled & set(every))], len(here), replaced


def _removed(files: ColdFiles, names: list[str]) -> list[str]:
    """Remove files; return the names of those that are gone."""
    found = []
    for name in names:
        try:
            if files.owner() is None:
                break  # not mounted: nothing was found there, and nothing would be removed
            files.remove(name)
        except FilesUnavailable:
            break
        found.append(name)
    return found


def _file_name(namespace: str, name: Name, day_s: int) -> str:
    tenant, _, model = name[0].partition("/")
    folder = "/".join(
        f"{what}={quote(value, safe='')}"
        for what, value in (("tenant", tenant), ("model", model), ("generation", name[1]))
    )
    return f"{namespace}/{folder}/{_date(day_s)}-{token_hex(8)}.parquet"


def _date(day_s: int) -> str:
    return datetime.fromtimestamp(day_s, UTC).date().isoformat()


def _ms(in_s: float) -> int:
    """Return a time from now, in milliseconds since the epoch."""
    return int((time.time() + in_s) * 1000)
