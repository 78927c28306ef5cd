"""Removal of stored panes: those past their model's retention, and everything of a deleted model.

Removals go through the fencing token like any other change, so that no other worker can restore a pane.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import Any

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.alarm_transfer import remove_alarm
from calibrant_server.workers.ingest.dead_letters import forget_generation
from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.lifecycle.expiry import remove_records
from calibrant_server.workers.store.cold_days import ColdDay, give_up
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import is_baseline
from calibrant_server.workers.store.watermarks import DAY_S, KEPT_FROM, Watermarks, pane_starts

_A_COMMIT = 400
_SCAN_COUNT = 1000


class PaneRemoval:
    """Removals of one partition.

    Parameters
    ----------
    keep_s : how long files of days are kept after their panes
    """

    def __init__(
        self, node: Any, keys: PartitionKeys, fencing: FencingToken, keep_s: float = 600.0
    ):
        self._keep_s = keep_s
        self._node = node
        self._keys = keys
        self._fencing = fencing
        # By model: the boundary up to which panes were removed.
        self._removed_to: dict[tuple[str, str], int] = {}

    def forget_but(self, names: set[tuple[str, str]]) -> None:
        """Forget the models that are not among `names`."""
        for name in self._removed_to.keys() - names:
            del self._removed_to[name]

    def drop_old_panes(self, config: ModelConfig, progress: Callable[[], None]) -> int:
        """Remove the panes that ended longer ago than the model's retention; return their number.

        The model's watermark moves first: from then on, no label changes or restores a pane that is being removed.
        """
        if config.retention_s is None:
            return 0
        # Panes expire at their boundaries; between two boundaries there is nothing to find.
        boundary = int((time.time() - config.retention_s) // config.pane_s) * config.pane_s
        name = (config.key, config.generation)
        if self._removed_to.get(name) == boundary:
            return 0
        found = self._node.hgetall(self._keys.marks(*name))
        if boundary > int(found.get(KEPT_FROM.encode(), 0)):
            self._mark_retained(config, boundary)
        n_removed = 0
        for some in _in_runs(self._panes_before(config, found, boundary)):
            progress()
            self._remove(some)
            n_removed += len(some)
        if n_removed:
            self._drop_empty_slices(config)
        # A pane longer than a day belongs to its first one.
        last_s = boundary - max(config.pane_s - DAY_S, 0)
        self._drop_samples(name, last_s)
        self._drop_files(name, last_s, int(time.time() + self._keep_s) * 1000)
        self._removed_to[name] = boundary
        return n_removed

    def _mark_retained(self, config: ModelConfig, boundary: int) -> None:
        commit = Commit(self._keys)
        commit.set_fields(
            self._keys.marks(config.key, config.generation), {KEPT_FROM: str(boundary)}
        )
        self._fencing.send(commit, self._fencing.new_token())

    def _panes_before(
        self, config: ModelConfig, marks: dict[bytes, bytes], boundary: int
    ) -> Iterator[PaneKey]:
        for pane in self._panes(config.key, config.generation):
            length_s = Watermarks.of(pane.slice, marks).length(pane.start_s, config.pane_s)
            if pane.start_s + length_s <= boundary and not is_baseline(pane.slice):
                yield pane

    def _drop_samples(self, name: tuple[str, str], boundary: float) -> None:
        """Remove the samples of days that ended by a time, whose panes are removed."""
        commit, members = Commit(self._keys), self._node.smembers(self._keys.samples(*name))
        for member in sorted(each.decode() for each in members):
            key = SampleKey.read(*name, member)
            if key.day_s + DAY_S <= boundary:
                commit.unlink(key.name(self._keys))
                commit.remove_member(self._keys.samples(*name), member)
        if commit.n_bytes:
            self._fencing.send(commit, self._fencing.new_token())

    def _drop_files(self, name: tuple[str, str], boundary: float, at_ms: int) -> None:
        """Give up the files of days that ended by a time, whose panes are removed."""
        commit, days = Commit(self._keys), self._keys.cold_days(*name)
        for start, text in self._node.hgetall(days).items():
            day = ColdDay.read(text)
            if day is not None and int(start) + DAY_S <= boundary:
                commit.drop_fields(days, [start])
                give_up(commit, self._keys, day.names, at_ms)
        if commit.n_bytes:
            self._fencing.send(commit, self._fencing.new_token())

    def _drop_empty_slices(self, config: ModelConfig) -> None:
        slices = self._keys.slices(config.key, config.generation)
        for member in self._node.smembers(slices):
            versions = self._keys.versions(config.key, config.generation, member.decode())
            if self._node.hkeys(versions) == [LAST_CHANGE.encode()]:
                commit = Commit(self._keys)
                commit.unlink(versions)
                commit.remove_member(slices, member.decode())
                self._fencing.send(commit, self._fencing.new_token())

    def remove_model(self, model: str, generation: str, progress: Callable[[], None]) -> None:
        """Remove panes, versions and batch records of a generation. Safe to repeat."""
        for some in _in_runs(self._panes(model, generation)):
            progress()
            self._remove(some)
        commit = remove_records(self._node, self._keys, model, generation)
        commit.drop_fields(self._keys.unsealable, [f"{model}|{generation}"])
        forget_generation(self._node, self._keys, model, generation, commit)
        self._fencing.send(commit, self._fencing.new_token())
        self._drop_samples((model, generation), inf)
        self._drop_files((model, generation), inf, 0)
        slices = [
            member.decode() for member in self._node.smembers(self._keys.slices(model, generation))
        ]
        left = [self._keys.versions(model, generation, slice_) for slice_ in slices]
        keys = self._keys
        stored = (
            *(keys.slices, keys.marks, keys.baselines, keys.map_versions),
            keys.report_archive,
        )
        left += [each(model, generation) for each in stored]
        left += remove_alarm(self._node, self._keys, self._fencing, model, generation)
        records = self._node.scan_iter(
            match=self._keys.records_pattern(model, generation), count=_SCAN_COUNT
        )
        left += [name.decode() for name in records]
        for names in _in_runs(left):
            progress()
            commit = Commit(self._keys)
            for name in names:
                commit.unlink(name)
            self._fencing.send(commit, self._fencing.new_token())

    def _panes(self, model: str, generation: str) -> Iterator[PaneKey]:
        # The panes of all rows last: the rows of their time slices, which feed the others too, go with them.
        found = pane_starts(self._node, self._keys, (model, generation), lambda slice_: True)
        for slice_ in reversed(found):
            for start in found[slice_]:
                yield PaneKey(model, generation, slice_, start)

    def _remove(self, panes: list[PaneKey]) -> None:
        token = self._fencing.new_token()
        commit = Commit(self._keys)
        for pane in panes:
            versions = self._keys.versions(pane.model, pane.generation, pane.slice)
            commit.unlink(self._keys.pane(pane))
            if pane.slice == ALL_ROWS:
                commit.unlink(self._keys.tail(pane))
                commit.unlink(self._keys.unsealed(pane.model, pane.generation, pane.start_s))
            commit.drop_fields(versions, [str(pane.start_s)])
            commit.set_fields(versions, {LAST_CHANGE: token})
        self._fencing.send(commit, token)


def _in_runs(things: Iterable[Any]) -> Iterator[list[Any]]:
    source = iter(things)
    while run := list(islice(source, _A_COMMIT)):
        yield run
