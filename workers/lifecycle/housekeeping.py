"""Periodic work on a partition: seal cohorts, merge old panes into days, remove what is past retention or belongs to
a deleted model, drop expired counters.

Removals of panes go through the fencing token like any other change, so that no other worker can restore one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import Any

from redis.exceptions import ResponseError

from calibrant.core.packing import PackingError
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.cohort_assembly import close_gathered
from calibrant_server.workers.alarm.removal import remove_alarm
from calibrant_server.workers.ingest.dead_letters import of_generation
from calibrant_server.workers.ingest.entries import IngestEntry
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.retained_record import RecordError
from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.lifecycle.compaction import Compaction
from calibrant_server.workers.lifecycle.due_times import DueTimes, next_due_s
from calibrant_server.workers.lifecycle.expiry import old_records, remove_records
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.store.batch_records import expiry_bucket_s
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.merge_index import drop_merges_of, drop_stale_merges
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.slice_names import is_baseline
from calibrant_server.workers.store.transient_errors import is_transient, store_message
from calibrant_server.workers.store.watermarks import DAY_S, KEPT_FROM, Watermarks

log = logging.getLogger(__name__)

_A_COMMIT = 400
_SCAN_COUNT = 1000
# A scan of retained records runs this long, then lets entries through.
_STRIDE_S = 0.1
_BETWEEN_STRIDES_S = 0.5
_AFTER_FAILURE_S = 1.0
_WALKS_A_RETENTION = 24


class Housekeeping:
    """Periodic work on one partition: sealing, merging into days, removals.

    Attributes
    ----------
    due_at : monotonic seconds of the next pass
    """

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, numerics: Numerics
    ):
        self._settings = store.settings
        self._node = store.node(keys.partition)
        self._keys = keys
        self._fencing = fencing
        self.due_at = 0.0
        self._looked: dict[tuple[str, str], int] = {}
        self._walked: dict[tuple[str, str], int] = {}
        self._walk: Iterator[None] | None = None
        self._due = DueTimes()
        self._examined: list[tuple[ModelConfig, float]] = []
        self._failed: set[tuple[str, str]] = set()
        self._texts: dict[bytes, ModelConfig] = {}
        sample_bytes = store.settings.sample_bytes
        self._sealing = Sealing(self._node, keys, fencing, numerics, sample_bytes=sample_bytes)
        self._compaction = Compaction(self._node, keys, fencing, numerics, sample_bytes)

    def run(self, progress: Callable[[], None] = lambda: None) -> bool:
        """Do one pass; return whether panes or watermarks may have changed."""
        # Also if this pass fails: entries continue meanwhile.
        pause_s = self._settings.housekeeping_s
        self.due_at = time.monotonic() + min(_AFTER_FAILURE_S, pause_s)
        has_changed = False
        if self._walk is None:
            self.drop_spent_buckets()
            before = self._fencing.cursor.token
            due = self._examine(progress)
            drop_stale_merges(self._node, self._keys)
            # By the token: a model whose work was rejected half way has commits, but no number.
            has_changed = self._fencing.cursor.token != before
            self._walk = self.old_records(due)
        if self._walk_on(progress):
            self._walk = None
            for config, next_s in self._examined:
                if (config.key, config.generation) not in self._failed:
                    self._due.done(config, next_s)
        self.due_at = time.monotonic() + (
            min(_BETWEEN_STRIDES_S, pause_s) if self._walk else pause_s
        )
        return has_changed

    def _examine(self, progress: Callable[[], None]) -> list[ModelConfig]:
        """Seal, merge and remove what is due; return the models that were examined."""
        now_s, configs = time.time(), self._configs()
        self._forget_gone_models(configs)
        due = self._due.due(configs, self._fencing.take_changed(), now_s)
        self._failed.clear()
        seen_to_s = self._seen_to_s()
        age_s = self._settings.compact_after_s
        self._examined = [
            (config, next_due_s(config, now_s, min(now_s, seen_to_s), age_s)) for config in due
        ]
        self.seal(progress, due)
        self.merge_days(progress, due)
        self.drop_old_panes(progress, due)
        return due

    def seal(
        self,
        progress: Callable[[], None] = lambda: None,
        configs: list[ModelConfig] | None = None,
    ) -> int:
        """Seal the cohorts that reached their model's label horizon; return their number. Default: of every model."""
        now_s = self._seen_to_s()
        return self._of_each(lambda config: self._seal(config, now_s, progress), configs)

    def _seal(self, config: ModelConfig, now_s: float, progress: Callable[[], None]) -> int:
        try:
            n_sealed = self._sealing.seal(config, now_s, progress)
        except ResponseError as error:
            if not is_transient(error):
                self._sealing.note_damage(config, store_message(error))
            raise
        try:
            self._close_gathered(config, now_s)
        except (PackingError, RecordError) as error:
            self._failed.add((config.key, config.generation))
            log.error("alarm_cohort_unreadable model=%s error=%s", config.key, error)
        return n_sealed

    def _of_each(
        self, work: Callable[[ModelConfig], int], configs: list[ModelConfig] | None
    ) -> int:
        """Do the same for each model; return the sum.

        A rejection by the store that lasts, such as a key of another type, belongs to one model: the others go on.
        """
        total = 0
        for config in self._configs() if configs is None else configs:
            try:
                total += work(config)
            except ResponseError as error:
                self._failed.add((config.key, config.generation))
                _report(config, error)
        return total

    def _close_gathered(self, config: ModelConfig, now_s: float) -> None:
        """Advance detectors by a cohort that no further pane will complete."""
        if self._sealing.is_blocked(config):
            # Its other panes may still be sealed, once the damaged one is readable or past its retention.
            self._failed.add((config.key, config.generation))
            return
        until_s = now_s - (config.label_horizon_s or 0)
        commit = close_gathered(self._node, self._keys, config, until_s)
        if commit is not None:
            self._fencing.send(commit, self._fencing.new_token())

    def _seen_to_s(self) -> float:
        """Return the time before which everything received is merged: now, or the arrival of the first waiting entry."""
        waiting = self._node.xrange(self._keys.stream, f"({self._fencing.cursor.id}", "+", count=1)
        if not waiting:
            return time.time()
        return min(time.time(), int(waiting[0][0].partition(b"-")[0]) / 1000)

    def merge_days(
        self,
        progress: Callable[[], None] = lambda: None,
        configs: list[ModelConfig] | None = None,
    ) -> int:
        """Merge the panes of days that are old enough; return the number of days. Default: of every model."""
        age_s = self._settings.compact_after_s
        if not age_s:
            return 0
        until_s = time.time() - age_s
        return self._of_each(lambda config: self._merge_days(config, until_s, progress), configs)

    def _merge_days(self, config: ModelConfig, until_s: float, progress: Callable[[], None]) -> int:
        n_days = self._compaction.merge_days(config, until_s, progress)
        if self._compaction.is_blocked:
            self._failed.add((config.key, config.generation))
        return n_days

    def _configs(self) -> list[ModelConfig]:
        """Return complete models; a partly imported one does not age."""
        texts = self._node.hvals(self._keys.models)
        known = self._texts
        self._texts = {text: known.get(text) or ModelConfig.from_json(text) for text in texts}
        return [config for config in self._texts.values() if config.importing is None]

    def _walk_on(self, progress: Callable[[], None]) -> bool:
        """Continue the scan of retained records for a while; return whether it is complete."""
        assert self._walk is not None
        until = time.monotonic() + _STRIDE_S
        for _ in self._walk:
            progress()
            if time.monotonic() > until:
                return False
        return True

    def old_records(self, configs: list[ModelConfig] | None = None) -> Iterator[None]:
        """Remove retained records whose panes are gone, in steps; each model a few times per retention. Default: of every model."""
        for config in self._configs() if configs is None else configs:
            try:
                yield from self._old_records(config)
            except ResponseError as error:
                self._failed.add((config.key, config.generation))
                _report(config, error)

    def _old_records(self, config: ModelConfig) -> Iterator[None]:
        if config.retention_s is None:
            return
        name = (config.key, config.generation)
        kept_from = int(self._node.hget(self._keys.marks(*name), KEPT_FROM) or 0)
        step_s = max(config.pane_s, config.retention_s // _WALKS_A_RETENTION)
        if kept_from >= self._walked.get(name, 0) + step_s:
            yield from old_records(self._node, self._keys, self._fencing, config, kept_from)
            self._walked[name] = kept_from

    def _forget_gone_models(self, configs: list[ModelConfig]) -> None:
        names = {(config.key, config.generation) for config in configs}
        for known in (self._looked, self._walked):
            for name in known.keys() - names:
                del known[name]

    def drop_spent_buckets(self) -> None:
        """Drop the counts of expired batch records."""
        first = int(time.time() // expiry_bucket_s(self._settings.idempotency_ttl_s))
        spent = [
            bucket for bucket in self._node.hkeys(self._keys.record_bytes) if int(bucket) < first
        ]
        if spent:
            self._node.hdel(self._keys.record_bytes, *spent)

    def drop_old_panes(
        self,
        progress: Callable[[], None] = lambda: None,
        configs: list[ModelConfig] | None = None,
    ) -> int:
        """Remove the panes that ended longer ago than their model's retention; return their number. Default: of every model.

        The model's watermark moves first: from then on, no label changes or restores a pane that is being removed.
        """
        return self._of_each(lambda config: self._drop_old_panes(config, progress), configs)

    def _drop_old_panes(self, config: ModelConfig, progress: Callable[[], None]) -> int:
        if config.retention_s is None:
            return 0
        # Panes expire at their boundaries; between two boundaries there is nothing to find.
        boundary = int((time.time() - config.retention_s) // config.pane_s) * config.pane_s
        name = (config.key, config.generation)
        if self._looked.get(name) == boundary:
            return 0
        found = self._node.hgetall(self._keys.marks(*name))
        if boundary > int(found.get(KEPT_FROM.encode(), 0)):
            self._mark_kept(config, boundary)
        n_removed = 0
        for some in _in_runs(self._panes_before(config, found, boundary)):
            progress()
            self._remove(some)
            n_removed += len(some)
        if n_removed:
            self._drop_empty_slices(config)
        # A pane longer than a day belongs to its first one.
        self._drop_samples(name, boundary - max(config.pane_s - DAY_S, 0))
        self._looked[name] = boundary
        return n_removed

    def _mark_kept(self, config: ModelConfig, boundary: int) -> None:
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

    def _drop_empty_slices(self, config: ModelConfig) -> None:
        slices = self._keys.slices(config.key, config.generation)
        for member in self._node.smembers(slices):
            versions = self._keys.versions(config.key, config.generation, member.decode())
            if self._node.hkeys(versions) == [LAST_CHANGE.encode()]:
                commit = Commit(self._keys)
                commit.unlink(versions)
                commit.remove_member(slices, member.decode())
                self._fencing.send(commit, self._fencing.new_token())

    def remove_model(self, entry: IngestEntry, progress: Callable[[], None]) -> None:
        """Remove panes, versions and batch records of a generation. Safe to repeat."""
        model, generation = entry.model, entry.generation
        for some in _in_runs(self._panes(model, generation)):
            progress()
            self._remove(some)
        drop_merges_of(self._node, self._keys, model, generation)
        commit = remove_records(self._node, self._keys, model, generation)
        commit.drop_fields(self._keys.unsealable, [f"{model}|{generation}"])
        for stream, ids in of_generation(self._node, self._keys, model, generation).items():
            commit.forget_entries(stream, ids)
        self._fencing.send(commit, self._fencing.new_token())
        self._drop_samples((model, generation), inf)
        slices = [
            member.decode() for member in self._node.smembers(self._keys.slices(model, generation))
        ]
        left = [self._keys.versions(model, generation, slice_) for slice_ in slices]
        keys = self._keys
        stored = (keys.slices, keys.marks, keys.baselines, keys.map_versions)
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
        members = self._node.smembers(self._keys.slices(model, generation))
        slices = sorted((member.decode() for member in members), reverse=True)
        with self._node.pipeline(transaction=False) as pipe:
            for slice_ in slices:
                pipe.hkeys(self._keys.versions(model, generation, slice_))
            found = pipe.execute()
        for slice_, starts in zip(slices, found, strict=True):
            for start in starts:
                if start.decode() != LAST_CHANGE:
                    yield PaneKey(model, generation, slice_, int(start))

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


def _report(config: ModelConfig, error: ResponseError) -> None:
    """Log a lasting rejection by the store; raise a state of the store, which concerns every model."""
    if is_transient(error):
        raise error
    log.error("housekeeping_failed model=%s error=%s", config.key, store_message(error))


def _in_runs(things: Iterable[Any]) -> Iterator[list[Any]]:
    source = iter(things)
    while run := list(islice(source, _A_COMMIT)):
        yield run
