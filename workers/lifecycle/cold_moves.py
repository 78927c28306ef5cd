"""Moves of old days from the store to files: days that are sealed, merged, and past `CALIBRANT_COLD_AFTER`.

1. A commit notes a folder among the spare ones, which are removed after an hour.
2. The files of the day are written into the folder. The partition's entries wait meanwhile: about a second for 32 MiB.
3. A commit removes the panes and samples from the store, names the files instead, and takes the folder off the spare ones. The
   fencing token rejects it if another worker has taken the partition over.

A kill at any point leaves the day in the store, or in files that the store names, and never in both. Versions do not change, so neither do
ETags and cached results. A day that is partly in the store again is written again once it has rested; one with a deleted prediction
at once. The new files take the place of the old ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from math import inf
from secrets import token_hex
from urllib.parse import quote

from calibrant.core.packing import PackingError
from calibrant_server.workers.lifecycle.day_state import DayReader, Name, OldDay
from calibrant_server.workers.lifecycle.tail_folding import TailFolding
from calibrant_server.workers.store.cold_days import ColdDay, give_up
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import (
    DayFile,
    DayFiles,
    DayItem,
    Fields,
    packed_day,
    packed_fields,
)
from calibrant_server.workers.store.file_owner import claim_files
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

log = logging.getLogger(__name__)

# Target of the bytes of one file: a move has them in memory, three times.
FILE_BYTES = 32 << 20
# A day with panes that came back rests this long: more delayed labels may follow.
REST_S = 3600
# A folder that was written and is not named after this time never will be.
SPARE_S = 3600


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
        self._reader = DayReader(self._node, keys)
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
                    self._move(files, config, day.day_s, progress)
        except FilesUnavailable:
            files.place.rest()
            raise
        return next_s

    def _old_days(self, config: ModelConfig, now_s: float) -> Iterator[tuple[OldDay, float]]:
        """Yield the days of a model that are to be moved, each with the time at which it may be."""
        for day in self._reader.days(config):
            cold = day.cold
            is_to_move = (
                (cold is None or cold.is_to_move)
                and day.is_past(self._settings.cold_after_s, now_s)
                and day.is_settled(merges=bool(self._settings.compact_after_s))
            )
            if is_to_move:
                yield day, 0.0 if cold is None else cold.rests_to_s(REST_S)

    def _move(
        self, files: DayFiles, config: ModelConfig, day_s: int, progress: Callable[[], None]
    ) -> None:
        """Write the files of a day and replace what they have by their names."""
        name = (config.key, config.generation)
        starts = sorted({each.start_s for each in self._reader.state(name, day_s).panes})
        if self._folding.fold(config, starts, progress)[1] is not None:
            return  # damaged rows stay where they are
        state = self._reader.state(name, day_s)
        cold = state.cold
        if not state.panes:
            return
        folder = _folder(self._keys.namespace, name, day_s)
        spare = self._keys.spare_files
        self._send(lambda commit: commit.set_fields(spare, {folder: str(_ms(SPARE_S))}))
        claim_files(self._client, self._owner_name, files.place)
        try:
            written = _written(files, folder, self._reader.fields(name, state), progress)
        except PackingError as error:
            day = _date(day_s)
            log.error("day_not_moved model=%s day=%s error=%s", config.key, day, error)
            return
        commit = Commit(self._keys)
        for item in state.in_store:
            commit.unlink(self._reader.key(name, item))
        commit.set_fields(self._keys.cold_days(*name), {str(day_s): ColdDay(written).to_json()})
        if cold is not None:
            give_up(commit, self._keys, cold.files, _ms(self._settings.cold_keep_s))
        commit.drop_fields(spare, [folder])
        self._fencing.send(commit, self._fencing.new_token())
        log.info("day_moved model=%s day=%s files=%d", config.key, _date(day_s), len(written))

    def sweep(self) -> None:
        """Remove folders that no day names, when their time has come.

        A commit marks them first: only the partition's worker removes files.
        """
        files = self._keys.files
        if files is None or files.place.rest_s or time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + self._settings.housekeeping_s
        spare = self._keys.spare_files
        found = self._node.hgetall(spare).items()
        folders = [key.decode() for key, at_ms in found if int(at_ms) <= _ms(0)]
        if not folders:
            return
        self._send(lambda commit: commit.set_fields(spare, dict.fromkeys(folders, "0")))
        try:
            if files.place.owner() is None:
                return  # where there is no marker, nothing would be found
            for folder in folders:
                files.place.delete(folder)
        except FilesUnavailable as error:
            log.warning("files_not_removed error=%s", error)
            return
        self._send(lambda commit: commit.drop_fields(spare, folders))

    def _send(self, write: Callable[[Commit], None]) -> None:
        commit = Commit(self._keys)
        write(commit)
        self._fencing.send(commit, self._fencing.new_token())


def _written(
    files: DayFiles,
    folder: str,
    items: Iterable[tuple[DayItem, Fields]],
    progress: Callable[[], None],
) -> tuple[DayFile, ...]:
    """Write the items of a day into as many files as their bytes need."""
    packed: dict[DayItem, bytes] = {}
    written: list[DayFile] = []

    def put() -> None:
        file, data = packed_day(f"{folder}/{len(written)}", packed)
        files.place.put(file.name, data)
        written.append(file)
        packed.clear()

    for item, fields in items:
        progress()
        packed[item] = packed_fields(fields)
        if sum(map(len, packed.values())) >= FILE_BYTES:
            put()
    if packed:
        put()
    return tuple(written)


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
