"""Advance of a model's drift detectors by a cohort, added to the commit that seals its last pane.

A cohort may be longer than a pane: sealed parts are collected until its last pane or a later one is sealed, or its time is over.
Detectors, cohort results, episodes and deliveries change together with the seal, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.actions import Advice, next_request
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.change import Change
from calibrant.drift.evaluation import effects_of, evaluate, judge_cohorts
from calibrant.drift.recommendation import at_rows, recommended_action
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmSnapshot, AlarmState
from calibrant_server.workers.alarm.cohort_evidence import CohortEvidence, evidence_of
from calibrant_server.workers.alarm.cohort_history import Before, CohortResult, since_change
from calibrant_server.workers.alarm.cohorts import (
    FIRST_CONTACTS,
    UNKNOWN,
    CohortContents,
    PartialCohort,
    detector_name,
    parts_of,
    tables_of,
    units_key,
)
from calibrant_server.workers.alarm.detectors import (
    Detector,
    OpenChange,
    n_judged,
    renewed,
    skipped,
    watched,
)
from calibrant_server.workers.alarm.drift_report import (
    Attribution,
    advised,
    effect_of,
    title_of,
    who_alarms,
    words_document,
)
from calibrant_server.workers.alarm.episodes import OPEN, Episode, at, episode_id, log10_of_p
from calibrant_server.workers.alarm.words_of import words_of
from calibrant_server.workers.ingest.pane_ids import forget
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig


def advance_cohort(writing: AlarmCommit, start_s: int, evidence: CohortEvidence) -> list[Episode]:
    """Advance the detectors of a model by the cohort that is sealed in this commit.

    Parameters
    ----------
    writing : the commit that seals the cohort
    start_s : its start in seconds since the epoch. Cohorts come in order; one that was processed before changes nothing
    evidence : for each detector

    Returns
    -------
    Episodes of the alarms that were raised.
    """
    settings, alarm_state = writing.settings, writing.alarm_state
    names = watched(alarm_state.detectors, [*evidence.cohorts, *evidence.passed], settings)
    before = {
        name: alarm_state.detectors.get(name) or Detector.begin(settings, alarm_state.active_map)
        for name in names
    }
    after: dict[str, Detector] = {}
    for name, each in before.items():
        again = renewed(each, settings, alarm_state.active_map)
        if not again.is_open(start_s):
            continue
        if name in evidence.cohorts:
            after[name] = _advanced(writing, name, again, start_s, evidence.cohorts[name], names)
        elif name in evidence.passed:
            after[name] = skipped(again, start_s, evidence.passed[name])
    if not after:
        return []
    alarm_state.detectors.update(after)
    raised = _episodes(writing, start_s, before, after)
    _note_units(writing, start_s, evidence, after)
    writing.detectors(after)
    return raised


def _advanced(
    writing: AlarmCommit,
    name: str,
    detector: Detector,
    start_s: int,
    table: UnitTable,
    names: list[str],
) -> Detector:
    """Return a detector after one more cohort, whose result is written."""
    settings, level = writing.settings, writing.settings.level(max(1, len(names)))
    new = CohortResult(start_s, 1.0, level, table).stored()
    results = [*writing.alarm_state.cohort_results(name), new]
    reference = writing.alarm_state.reference
    found = advanced(
        detector, results, settings, level, n_judged(names, settings), reference.of(name)
    )
    writing.cohort_result(name, replace(new, p=found.p), [each.cohort for each in results], found)
    return found


def _episodes(
    writing: AlarmCommit,
    start_s: int,
    before: Mapping[str, Detector],
    after: dict[str, Detector],
) -> list[Episode]:
    """Close the episodes that ended and open those of changes shown at this cohort."""
    raised: list[Episode] = []
    who = who_alarms({**before, **after})  # the watched detectors only
    for name, each in list(after.items()):
        if before[name].episode is not None and each.episode is None:
            writing.close(str(before[name].episode), "the settings of the alarm changed")
        if each.change is None or each.change.alarmed_at != start_s:
            continue
        if each.episode is not None:
            writing.close(each.episode, "the detector raised another alarm")
        episode = _raised(writing, name, each, who)
        after[name] = replace(each, episode=episode.id)
        raised.append(episode)
    return writing.raise_event(raised)


def _note_units(
    writing: AlarmCommit, start_s: int, evidence: CohortEvidence, after: dict[str, Detector]
) -> None:
    """Write the units that were new in a cohort, and how many were left out."""
    name = detector_name(writing.settings.scopes[0], ALL_ROWS)
    main = after.get(name)
    if main is None:
        return
    if evidence.units is None:
        after[name] = replace(main, units=UNKNOWN)
        return
    after[name] = replace(
        main, units=FIRST_CONTACTS, n_left_out=main.n_left_out + evidence.units.n_left_out
    )
    key = units_key(writing.commit.keys, writing.config.key, writing.config.generation)
    if len(evidence.units.new):
        writing.commit.set_fields(key, {str(start_s): evidence.units.pack()})
    lost = writing.alarm_state.seen_units.forgotten(len(evidence.units.new))
    if lost:
        writing.commit.drop_fields(key, [str(start) for start in lost])


def _raised(
    writing: AlarmCommit, name: str, detector: Detector, who: Attribution | None
) -> Episode:
    config, settings, state = writing.config, writing.settings, writing.alarm_state
    results = state.cohort_results(name)
    change = detector.change
    assert change is not None
    words = words_of(AlarmSnapshot(state, name), writing.now_s)
    document = words_document(words)
    scope, slice_ = parts_of(name)
    since, _ = since_change(results, change.start, None)
    return Episode(
        id=episode_id(
            writing.commit.keys.partition, config.key, config.generation, name, change.alarmed_at
        ),
        tenant=config.tenant,
        model=config.model,
        generation=config.generation,
        scope=scope,
        slice=slice_,
        status=OPEN,
        title=title_of(name, who),
        number=state.next_number(),
        cohort=change.alarmed_at,
        bucket_s=settings.bucket_s,
        start_of_change=change.start,
        evidence_log10=log10_of_p(change.p),
        threshold_log10=log10_of_p(results[-1].level),
        calibration=document["calibration"],
        change=document["change"],
        effect=effect_of(words.change, config.task) or {},
        recommendation=_recommendation(writing, since, change.start, who),
        map_version=detector.map_version,
        raised_s=writing.now_s,
        changed_s=writing.now_s,
    )


def _recommendation(
    writing: AlarmCommit, since: UnitTable, start_s: int, who: Attribution | None
) -> Advice:
    """Return what to do about a change that was just shown, with the request that does it."""
    config, is_binary = writing.config, writing.config.task == "binary"
    # The table of a top label gives another temperature than its rows do.
    advice = recommended_action(since, None, writing.settings.tolerance) if is_binary else at_rows()
    advice = advised(advice, who)
    window = {"from": at(start_s), "clock": "sealed"}
    return {**advice, "next": next_request(advice["action"], config.model, is_binary, window)}


def advanced(
    detector: Detector,
    results: Sequence[CohortResult],
    settings: AlarmSettings,
    level: float,
    n_words: int = 1,
    before: Before = Before(),  # noqa: B008
) -> Detector:
    """Return a detector after one more cohort, the last of its results; it is open to it and of the present settings.

    Parameters
    ----------
    results : of its cohorts, in order, the new one included
    level : of this cohort's tests
    n_words : slices and classes that share the level of `off`
    before : the model's reference
    """
    cohort = results[-1]
    begun = detector.begun
    if begun is None and cohort.table.occupancy.sum() > 0:
        begun = cohort.cohort
    ahead = replace(
        detector,
        begun=begun,
        last=cohort.cohort,
        total=merged([detector.total, cohort.table]),
    )
    if not cohort.is_labelled:
        return ahead
    return _judged(_compared(ahead, results, level, before), results, settings, n_words)


def _compared(
    detector: Detector, results: Sequence[CohortResult], level: float, before: Before
) -> Detector:
    """Apply the rule of change to the cohorts since `begun`."""
    labelled = detector.compared(results, before)
    if not labelled:
        return detector
    effects = effects_of([each.table for each in labelled], rated=before.block is None)
    found = evaluate(effects, level, before.block)
    ahead = replace(detector, p=found.p, leaning=found.leaning)
    if found.change is None or detector.change is not None:
        return ahead
    if not found.change.is_worse:
        return replace(ahead, improved_at=labelled[found.change.start].cohort)
    change = _opened(
        found.change, [each.cohort for each in labelled], found.leaning, before.block is not None
    )
    return replace(ahead, change=change, words=replace(ahead.words, was_good=True))


def _opened(
    found: Change, cohorts: Sequence[int], leaning: NDArray[np.float64], has_block: bool
) -> OpenChange:
    return OpenChange(
        cohorts[-1],
        cohorts[found.start],
        cohorts[found.earliest],
        cohorts[found.latest],
        found.direction,
        int(np.sign(leaning[found.direction])),
        found.p,
        has_block and found.start == 0,
    )


def _judged(
    detector: Detector, results: Sequence[CohortResult], settings: AlarmSettings, n_words: int
) -> Detector:
    """Compare the recent cohorts with the tolerance."""
    recent = detector.recent(detector.counted(results))
    now = judge_cohorts([each.table for each in recent], settings.tolerance, n_words)
    return replace(
        detector, words=detector.words.turned(now, results[-1].cohort, settings.tolerance)
    )


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
