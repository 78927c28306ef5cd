"""From sealed panes to the alarm's cohorts. A cohort may be longer than a pane, for example a day of hours.

Sealed parts are collected. Detectors process the cohort when its last pane or a later one is sealed, or when its time is
over without any. Each step is part of the commit that seals the pane.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_evidence import evidence_of
from calibrant_server.workers.alarm.cohorts import CohortContents, PartialCohort, tables_of
from calibrant_server.workers.alarm.detector_advance import advance_cohort
from calibrant_server.workers.ingest.pane_ids import forget
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig


def take_sealed(
    commit: Commit,
    keys: PartitionKeys,
    node: Any,
    config: ModelConfig,
    start_s: int,
    end_s: int,
    panes: Mapping[str, Pane],
) -> None:
    """Pass what a commit seals to the alarm: the panes of each slice from `start_s` to `end_s`."""
    writing = _writing(commit, keys, node, config)
    settings, alarm_state = writing.settings, writing.alarm_state
    length_s = settings.bucket_s
    bucket = start_s // length_s * length_s
    partial_cohort = alarm_state.partial_cohort
    if partial_cohort is not None and partial_cohort.start_s != bucket:
        _advance(writing, partial_cohort)
        partial_cohort = None
    found = tables_of(settings, panes, alarm_state.active_map)
    contents = CohortContents.of(panes.get(ALL_ROWS), range(start_s, end_s, config.pane_s))
    made_of = f"{settings.made_of}|{alarm_state.active_map.version if settings.is_mapped else None}"
    begun = partial_cohort or PartialCohort(bucket, bucket + length_s, {}, made_of)
    cohort = begun.joined(found, contents, made_of)
    if end_s >= cohort.end_s:
        _advance(writing, cohort)
    else:
        commit.set_fields(
            keys.partial_cohorts, {f"{config.key}|{config.generation}": cohort.pack()}
        )


def close_partial_cohort(
    node: Any, keys: PartitionKeys, config: ModelConfig, sealed_until_s: float
) -> Commit | None:
    """Return the commit that advances detectors by a collected cohort that can no longer grow, or None."""
    if config.label_horizon_s is None:
        return None
    commit = Commit(keys)
    writing = _writing(commit, keys, node, config)
    partial_cohort = writing.alarm_state.partial_cohort
    if partial_cohort is None or partial_cohort.end_s > sealed_until_s:
        return None
    _advance(writing, partial_cohort)
    return commit


def _advance(writing: AlarmCommit, cohort: PartialCohort) -> None:
    """Advance detectors by a cohort and drop its collected parts."""
    config, commit = writing.config, writing.commit
    evidence = evidence_of(writing.alarm_state, writing.settings, cohort)
    advance_cohort(writing, cohort.start_s, evidence)
    commit.drop_fields(commit.keys.partial_cohorts, [f"{config.key}|{config.generation}"])
    forget(commit, commit.keys, config, cohort.contents.starts)


def _writing(commit: Commit, keys: PartitionKeys, node: Any, config: ModelConfig) -> AlarmCommit:
    token = token_hex(8).encode()
    return AlarmCommit(commit, config, AlarmState(node, keys, config), token, time.time())
