"""What a partition's worker removes: panes past retention, all of a deleted model, spent counters.

Panes go through the token chain like any other change, so that no other worker can write one back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from workers.alarm.removal import remove_alarm
from workers.chain import Chain
from workers.entries import Entry
from workers.expiry import drop_old_records, remove_records
from workers.state.commit import Commit
from workers.state.keys import LAST_CHANGE, PaneKey, PartitionKeys
from workers.state.records import expiry_bucket_s
from workers.state.registry import ModelConfig
from workers.store import Store

_A_COMMIT = 400
_SCAN_COUNT = 1000


class Housekeeping:
    """Removals of one partition."""

    def __init__(self, store: Store, keys: PartitionKeys, chain: Chain):
        self._settings = store.settings
        self._node = store.node(keys.partition)
        self._keys = keys
        self._chain = chain
        self._next_at = 0.0
        self._looked: dict[tuple[str, str], int] = {}

    def when_due(self) -> bool:
        """Once in a while, remove what has outlived its time; tells whether panes have gone."""
        if time.monotonic() < self._next_at:
            return False
        self._next_at = time.monotonic() + self._settings.housekeeping_s
        self.drop_spent_buckets()
        return self.drop_old_panes() > 0

    def drop_spent_buckets(self) -> None:
        """Forget the counts of batch records that have expired."""
        first = int(time.time() // expiry_bucket_s(self._settings.idempotency_ttl_s))
        spent = [
            bucket for bucket in self._node.hkeys(self._keys.record_bytes) if int(bucket) < first
        ]
        if spent:
            self._node.hdel(self._keys.record_bytes, *spent)

    def drop_old_panes(self) -> int:
        """Remove the panes that ended longer ago than their model's retention; returns how many."""
        n_removed = 0
        for text in self._node.hvals(self._keys.models):
            config = ModelConfig.from_json(text)
            if config.retention_s is None:
                continue
            # Panes grow old one boundary at a time; between two there is nothing to look for.
            boundary = int((time.time() - config.retention_s) // config.pane_s) * config.pane_s
            name = (config.key, config.generation)
            if self._looked.get(name) == boundary:
                continue
            old = (pane for pane in self._panes(*name) if pane.start_s + config.pane_s <= boundary)
            for some in _in_runs(old):
                self._remove(some)
                n_removed += len(some)
            if n_removed:
                self._drop_empty_slices(config)
            self._looked[name] = boundary
        return n_removed

    def _drop_empty_slices(self, config: ModelConfig) -> None:
        slices = self._keys.slices(config.key, config.generation)
        for member in self._node.smembers(slices):
            versions = self._keys.versions(config.key, config.generation, member.decode())
            if self._node.hkeys(versions) == [LAST_CHANGE.encode()]:
                commit = Commit(self._keys)
                commit.unlink(versions)
                commit.remove_member(slices, member.decode())
                self._chain.send(commit, self._chain.new_token())

    def remove_model(self, entry: Entry, progress: Callable[[], None]) -> None:
        """Remove panes, versions and batch records of a generation; repeats harmlessly."""
        model, generation = entry.model, entry.generation
        for some in _in_runs(self._panes(model, generation)):
            progress()
            self._remove(some)
        self._chain.send(
            remove_records(self._node, self._keys, model, generation), self._chain.new_token()
        )
        slices = [
            member.decode() for member in self._node.smembers(self._keys.slices(model, generation))
        ]
        left = [self._keys.versions(model, generation, slice_) for slice_ in slices]
        left.append(self._keys.slices(model, generation))
        left += remove_alarm(self._node, self._keys, self._chain, model, generation)
        records = self._node.scan_iter(
            match=self._keys.records_pattern(model, generation), count=_SCAN_COUNT
        )
        left += [name.decode() for name in records]
        for names in _in_runs(left):
            progress()
            commit = Commit(self._keys)
            for name in names:
                commit.unlink(name)
            self._chain.send(commit, self._chain.new_token())

    def _panes(self, model: str, generation: str) -> Iterator[PaneKey]:
        for member in self._node.smembers(self._keys.slices(model, generation)):
            slice_ = member.decode()
            for start in self._node.hkeys(self._keys.versions(model, generation, slice_)):
                if start.decode() != LAST_CHANGE:
                    yield PaneKey(model, generation, slice_, int(start))

    def _remove(self, panes: list[PaneKey]) -> None:
        token = self._chain.new_token()
        commit = Commit(self._keys)
        for pane in panes:
            versions = self._keys.versions(pane.model, pane.generation, pane.slice)
            commit.unlink(self._keys.pane(pane))
            commit.drop_fields(versions, [str(pane.start_s)])
            commit.set_fields(versions, {LAST_CHANGE: token})
        self._chain.send(commit, token)


def _in_runs(things: Iterable[Any]) -> Iterator[list[Any]]:
    source = iter(things)
    while run := list(islice(source, _A_COMMIT)):
        yield run
