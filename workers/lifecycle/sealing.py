"""Cohorts sealed at the label horizon: copies of the panes at that time, stored in addition to the live panes.

A cohort is the content of one pane of event time. When its age reaches the horizon, one commit copies each slice's pane
to the slice's sealed name and moves the model's watermark to the cohort's end: once, in order, permanently. Later changes
are in the live panes only. A horizon that is declared late seals the cohorts that have passed it in their current state, with
the same units and raters as if it had been declared before the data.

A cohort is never sealed without part of its evidence. An error of the store or of memory leaves it for the next pass. A
damaged pane leaves it and all later cohorts of the model unsealed, as `PartitionKeys.unsealable` records, until the pane
is readable again or past its retention: a stopped alarm that is reported is safer than a wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calibrant.accumulators.sample import MAX_PANE_BYTES
from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.detector_advance import take_sealed
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleCache, SampleKey
from calibrant_server.workers.ingest.sample_reading import SampleSource, by_day
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.lifecycle.index_of_records import complete_index
from calibrant_server.workers.store.cold_days import ColdDays
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.day_file import pane_item
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import is_live, sealed_slice
from calibrant_server.workers.store.watermarks import SEALED_TO, Watermarks, daily_to, pane_starts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SealedCohort:
    """The predictions of one pane of event time, in seconds since the epoch."""

    start_s: int
    length_s: int

    @property
    def end_s(self) -> int:
        """When the last prediction may have been made."""
        return self.start_s + self.length_s


class Sealing:
    """Sealer of the cohorts of one partition's models."""

    def __init__(
        self,
        node: Any,
        keys: PartitionKeys,
        fencing: FencingToken,
        numerics: Numerics,
        sample_bytes: int = MAX_PANE_BYTES,
    ):
        self._node = node
        self._keys = keys
        self._fencing = fencing
        self._numerics = numerics
        self._sample_bytes = sample_bytes

    def seal(
        self, config: ModelConfig, now_s: float, progress: Callable[[], None] = lambda: None
    ) -> int:
        """Seal each cohort that reached the horizon; return their number.

        Parameters
        ----------
        now_s : everything received before this time is in the panes
        """
        if config.label_horizon_s is None:
            self.note_damage(config, None)
            return 0
        model = (config.key, config.generation)
        marks = self._node.hgetall(self._keys.marks(*model))
        try:
            complete_index(self._node, self._keys, self._fencing, config, marks, progress)
        except RecordError as error:
            self.note_damage(config, f"records: {error}")
            return 0
        panes_by_slice = pane_starts(self._node, self._keys, model, is_live)
        n_cohorts = 0
        for cohort in self._due(config, marks, panes_by_slice, now_s - config.label_horizon_s):
            progress()
            try:
                self._seal(config, marks, cohort, panes_by_slice)
            except (PackingError, RecordError) as error:
                # Later cohorts wait as well: detectors process them in order.
                self.note_damage(config, f"{cohort.start_s}: {error}")
                return n_cohorts
            n_cohorts += 1
        self.note_damage(config, None)
        return n_cohorts

    def is_blocked(self, config: ModelConfig) -> bool:
        """Whether a damaged pane keeps cohorts of the model from being sealed."""
        field = f"{config.key}|{config.generation}"
        return bool(self._node.hexists(self._keys.unsealable, field))

    def note_damage(self, config: ModelConfig, why: str | None) -> None:
        """Record in the store that a model's cohorts cannot be sealed, or can be again."""
        name, field = self._keys.unsealable, f"{config.key}|{config.generation}"
        known = self._node.hget(name, field)
        if (None if known is None else known.decode()) == why:
            return
        commit = Commit(self._keys)
        if why is None:
            commit.drop_fields(name, [field])
        else:
            log.error("cohort_not_sealed model=%s error=%s", config.key, why)
            commit.set_fields(name, {field: why[:500]})
        self._fencing.send(commit, self._fencing.new_token())

    def _due(
        self,
        config: ModelConfig,
        marks: dict[bytes, bytes],
        panes_by_slice: dict[str, list[int]],
        until_s: float,
    ) -> list[SealedCohort]:
        """Return unsealed cohorts that ended by `until_s`, oldest first.

        Of a cohort past retention some panes may have been removed: it is not sealed any more.
        """
        marks_of_all = Watermarks.of(ALL_ROWS, marks)
        starts = sorted(
            {marks_of_all.start(start) for each in panes_by_slice.values() for start in each}
        )
        cohorts = (
            SealedCohort(start, marks_of_all.length(start, config.pane_s)) for start in starts
        )
        return [
            each
            for each in cohorts
            if each.start_s >= marks_of_all.sealed_to
            and marks_of_all.kept_from < each.end_s <= until_s
        ]

    def _seal(
        self,
        config: ModelConfig,
        marks: dict[bytes, bytes],
        cohort: SealedCohort,
        panes_by_slice: dict[str, list[int]],
    ) -> None:
        model = (config.key, config.generation)
        panes = {
            slice_: self._pane(config, slice_, inside)
            for slice_, starts in panes_by_slice.items()
            if (inside := [start for start in starts if cohort.start_s <= start < cohort.end_s])
        }
        token, commit = self._fencing.new_token(), Commit(self._keys)
        cold = ColdDays(self._node, self._keys)
        if self._numerics.keeps_samples and self._sample_bytes:
            self._seal_sample(
                config, marks, cohort, panes_by_slice.get(ALL_ROWS, []), commit, token, cold
            )
        moved = {SEALED_TO: str(cohort.end_s)}
        for slice_, pane in panes.items():
            name = sealed_slice(slice_)
            key = PaneKey(*model, name, cohort.start_s)
            versions = self._keys.versions(*model, name)
            parts = pane.parts()
            commit.add_member(self._keys.slices(*model), name)
            cold.bring_back(commit, [(model, pane_item(key))])
            if parts:
                commit.set_fields(self._keys.pane(key), parts)
            commit.set_fields(versions, {str(cohort.start_s): token, LAST_CHANGE: token})
            if cohort.length_s > config.pane_s:
                moved[daily_to(name)] = str(max(cohort.end_s, Watermarks.of(name, marks).daily_to))
        commit.set_fields(self._keys.marks(*model), moved)
        live = {slice_: pane for slice_, pane in panes.items() if isinstance(pane, Pane)}
        take_sealed(commit, self._keys, self._node, config, cohort.start_s, cohort.end_s, live)
        self._fencing.send(commit, token)

    def _seal_sample(
        self,
        config: ModelConfig,
        marks: dict[bytes, bytes],
        cohort: SealedCohort,
        starts: list[int],
        commit: Commit,
        token: bytes,
        cold: ColdDays,
    ) -> None:
        """Copy the cohort's rows from the sample of their day to the sample of sealed cohorts."""
        model = (config.key, config.generation)
        source = SampleSource(
            self._keys, self._numerics, config, ALL_ROWS, Watermarks.of(ALL_ROWS, marks)
        )
        inside = [start for start in starts if cohort.start_s <= start < cohort.end_s]
        for day_s, some in by_day(inside).items():
            day = source.day(self._node, day_s, dict.fromkeys(some))
            if day.rows is not None:
                samples = SampleCache(self._node, self._keys, self._sample_bytes, cold)
                samples[SampleKey(*model, day_s, True)].add(day.rows, day.halvings)
                samples.commit_with(commit, token)

    def _pane(self, config: ModelConfig, slice_: str, starts: list[int]) -> Any:
        """Merge a slice's panes of a cohort; raise PackingError if one of them is damaged."""
        spec = self._numerics.spec(config)
        merged = self._numerics.empty(spec)
        for start in starts:
            key = PaneKey(config.key, config.generation, slice_, start)
            merged.merge(read_pane(self._node, self._keys, self._numerics, config, key)[0])
        return merged
