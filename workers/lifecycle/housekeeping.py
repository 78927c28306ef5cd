"""Periodic work on a partition: seal cohorts, merge old panes into days, move old days to files, remove what is past retention
or belongs to a deleted model, drop expired counters.

A sweep applies the rules of `levels.py` to every model that is due, in steps. A pass does steps for a while; the next one continues.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator

from redis.exceptions import ResponseError

from calibrant.core.packing import PackingError
from calibrant_server.workers.alarm.detector_advance import close_partial_cohort
from calibrant_server.workers.ingest.entries import IngestEntry
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.lifecycle.cold_moves import DayMoves
from calibrant_server.workers.lifecycle.compaction import Compaction, TailFolding
from calibrant_server.workers.lifecycle.expiry import old_records
from calibrant_server.workers.lifecycle.levels import (
    DAYS,
    FILES,
    GONE,
    SEALED,
    DueTimes,
    min_age_s,
    next_due_s,
    rules_of,
)
from calibrant_server.workers.lifecycle.removal import PaneRemoval
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.store.batch_records import expiry_bucket_s
from calibrant_server.workers.store.commit import FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.transient_errors import is_transient, store_message
from calibrant_server.workers.store.watermarks import KEPT_FROM

Progress = Callable[[], None]

log = logging.getLogger(__name__)

# A pass works this long, then entries are let through. Sealing an hour of a model with 20 slices takes 0.1 s or more, and the hours
# of all models of a partition end at the same time.
EXAMINE_S = 0.5
_BETWEEN_PASSES_S = 0.5
_AFTER_FAILURE_S = 1.0
_WALKS_A_RETENTION = 24
# Passes of all partitions begin at so many moments of a pause, so that a process that rests wakes up less often.
_MOMENTS_A_PAUSE = 12


class Housekeeping:
    """Periodic work on one partition: sealing, merging into days, removals.

    Attributes
    ----------
    due_at : monotonic seconds of the next pass
    """

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, numerics: Numerics
    ):
        self._store = store
        self._settings = store.settings
        self._node = store.node(keys.partition)
        self._keys = keys
        self._fencing = fencing
        self.due_at = 0.0
        self._removal = PaneRemoval(self._node, keys, fencing, store.settings.cold_keep_s)
        self._walked: dict[tuple[str, str], int] = {}
        self._sweep: Iterator[None] | None = None
        self._due = DueTimes()
        self._failed: set[tuple[str, str]] = set()
        # Monotonic end of this pass, and the models at its beginning.
        self._until = math.inf
        self._models: dict[tuple[str, str], ModelConfig] = {}
        self._texts: dict[bytes, ModelConfig] = {}
        sample_bytes = store.settings.sample_bytes
        self._sealing = Sealing(self._node, keys, fencing, numerics, sample_bytes=sample_bytes)
        folding = TailFolding(store, keys, fencing, numerics)
        self._compaction = Compaction(self._node, keys, fencing, numerics, folding)
        self._cold = DayMoves(store, keys, fencing, folding)
        self._applied: dict[str, Callable[[ModelConfig, float, Progress], float]] = {
            SEALED: self._seal,
            DAYS: self._merge_days,
            GONE: lambda config, _, progress: self._removal.drop_old_panes(config, progress),
            FILES: lambda config, _, progress: self._cold.move_days(config, progress, self._until),
        }

    def run(self, progress: Progress = lambda: None) -> bool:
        """Do one pass; return whether panes or watermarks may have changed."""
        pause_s, before = self._settings.housekeeping_s, self._fencing.cursor.token
        # Also if this pass fails: entries continue meanwhile, and the next sweep begins with the models that are not done.
        self.due_at = time.monotonic() + min(_AFTER_FAILURE_S, pause_s)
        self._until = time.monotonic() + EXAMINE_S
        self._models = {(each.key, each.generation): each for each in self._configs()}
        sweep, self._sweep = self._sweep or self._steps(progress), None
        goes_on = any(time.monotonic() > self._until for _ in sweep)
        self._sweep = sweep if goes_on else None
        self._cold.sweep()
        self.due_at = (
            time.monotonic() + min(_BETWEEN_PASSES_S, pause_s) if goes_on else _end_of(pause_s)
        )
        # By the token: a model whose work was rejected half way has commits, but no number.
        return self._fencing.cursor.token != before

    def _steps(self, progress: Progress) -> Iterator[None]:
        """Seal, merge, move and remove what is due, in steps; a model that was changed or deleted meanwhile stays due."""
        self.drop_spent_buckets()
        now_s = time.time()
        self._forget_gone_models()
        self._failed.clear()
        changed = self._fencing.take_changed()
        due = self._due.due(
            self._models.values(),
            changed,
            now_s,
            lambda each: min_age_s(rules_of(each, self._settings)),
        )
        for config in due:
            if self._models.get((config.key, config.generation)) is not config:
                continue
            next_s = yield from self._examine(config, now_s, progress)
            for _ in self.old_records([config]):
                progress()
                yield
            if not self._has_failed(config):
                self._due.done(config, next_s)

    def _examine(
        self, config: ModelConfig, now_s: float, progress: Progress
    ) -> Generator[None, None, float]:
        """Apply each rule to a model; return when it is due again."""
        merged_to_s = min(time.time(), self._merged_to_s())
        own = rules_of(config, self._settings)
        next_s = next_due_s(own, now_s, merged_to_s)
        for rule in own:
            found = self.apply(rule.level, [config], progress, merged_to_s)
            while rule.level == FILES and found <= now_s and not self._has_failed(config):
                yield
                found = self.apply(rule.level, [config], progress, merged_to_s)
            if rule.level == FILES:
                next_s = min(next_s, found)
        yield
        return next_s

    def _has_failed(self, config: ModelConfig) -> bool:
        return (config.key, config.generation) in self._failed

    def apply(
        self,
        level: str,
        configs: list[ModelConfig] | None = None,
        progress: Progress = lambda: None,
        merged_to_s: float | None = None,
    ) -> float:
        """Move what is old enough to a level (`levels.py`).

        A rejection by the store that lasts, such as a key of another type, belongs to one model: work on the others continues.

        Parameters
        ----------
        configs : default: every model
        merged_to_s : everything received before this time is merged; default: as the stream says

        Returns
        -------
        how many cohorts, days or panes reached it; of files, when a day that rests may follow
        """
        now_s = self._merged_to_s() if merged_to_s is None else merged_to_s
        total = 0.0
        for config in self._configs() if configs is None else configs:
            try:
                total += self._applied[level](config, now_s, progress)
            except FilesUnavailable as error:
                self._failed.add((config.key, config.generation))
                log.warning("housekeeping_waits_for_files model=%s error=%s", config.key, error)
            except ResponseError as error:
                self._failed.add((config.key, config.generation))
                _report(config, error)
        return total

    def _seal(self, config: ModelConfig, now_s: float, progress: Progress) -> int:
        try:
            n_sealed = self._sealing.seal(config, now_s, progress)
        except ResponseError as error:
            if not is_transient(error):
                self._sealing.note_damage(config, store_message(error))
            raise
        try:
            self._close_partial_cohort(config, now_s)
        except (PackingError, RecordError) as error:
            self._failed.add((config.key, config.generation))
            log.error("alarm_cohort_unreadable model=%s error=%s", config.key, error)
        return n_sealed

    def _close_partial_cohort(self, config: ModelConfig, now_s: float) -> None:
        """Advance detectors by a cohort that no further pane will complete."""
        if self._sealing.is_blocked(config):
            # Its other panes may still be sealed, once the damaged one is readable or past its retention.
            self._failed.add((config.key, config.generation))
            return
        until_s = now_s - (config.label_horizon_s or 0)
        commit = close_partial_cohort(self._node, self._keys, config, until_s)
        if commit is not None:
            self._fencing.send(commit, self._fencing.new_token())

    def _merged_to_s(self) -> float:
        """Return the time before which everything received is merged: now, or the arrival of the first waiting entry."""
        waiting = self._node.xrange(self._keys.stream, f"({self._fencing.cursor.id}", "+", count=1)
        if not waiting:
            return time.time()
        return min(time.time(), int(waiting[0][0].partition(b"-")[0]) / 1000)

    def _merge_days(self, config: ModelConfig, _: float, progress: Progress) -> int:
        if not self._settings.compact_after_s:
            return 0
        until_s = time.time() - self._settings.compact_after_s
        n_days = self._compaction.merge_days(config, until_s, progress)
        if self._compaction.is_blocked:
            self._failed.add((config.key, config.generation))
        return n_days

    def _configs(self) -> list[ModelConfig]:
        """Return complete models; one that is partly imported does not age."""
        return [config for config in self._stored_configs() if config.importing is None]

    def _stored_configs(self) -> list[ModelConfig]:
        texts = self._node.hvals(self._keys.models)
        known = self._texts
        self._texts = {text: known.get(text) or ModelConfig.from_json(text) for text in texts}
        return list(self._texts.values())

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

    def _forget_gone_models(self) -> None:
        self._removal.forget_but({*self._models})
        for name in self._walked.keys() - self._models.keys():
            del self._walked[name]

    def drop_spent_buckets(self) -> None:
        """Drop the counts of expired batch records."""
        first = int(time.time() // expiry_bucket_s(self._settings.idempotency_ttl_s))
        spent = [
            bucket for bucket in self._node.hkeys(self._keys.record_bytes) if int(bucket) < first
        ]
        if spent:
            self._node.hdel(self._keys.record_bytes, *spent)

    def remove_model(self, entry: IngestEntry, progress: Progress) -> None:
        """Remove everything of a deleted model. Safe to repeat."""
        self._removal.remove_model(entry.model, entry.generation, progress)


def _end_of(pause_s: float) -> float:
    """Return when a pause that begins now ends: at most a twelfth of it early."""
    end, step_s = time.monotonic() + pause_s, pause_s / _MOMENTS_A_PAUSE
    return end // step_s * step_s if step_s else end


def _report(config: ModelConfig, error: ResponseError) -> None:
    """Log a lasting rejection by the store; raise a state of the store, which concerns every model."""
    if is_transient(error):
        raise error
    log.error("housekeeping_failed model=%s error=%s", config.key, store_message(error))
