"""Advance of a model's drift detectors by a cohort, added to the commit that seals its last pane.

A cohort may be longer than a pane: sealed parts are collected until its last pane or a later one is sealed, or its time is over.
Detectors, cohort results, episodes and deliveries change together with the seal, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibrant.core.action_texts import of_slice
from calibrant.core.actions import Advice, at_rows, read_drift
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.evaluation import effects_of, evaluate, judge_cohorts
from calibrant.drift.recommendation import recommended_action
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_evidence import CohortEvidence, evidence_of
from calibrant_server.workers.alarm.cohorts import (
    FIRST_CONTACTS,
    UNKNOWN,
    CohortContents,
    CohortResult,
    FirstContacts,
    PartialCohort,
    detector_name,
    parts_of,
    since_change,
    tables_of,
    units_key,
)
from calibrant_server.workers.alarm.detectors import (
    Before,
    Detector,
    OpenChange,
    n_judged,
    promoted,
    watched,
)
from calibrant_server.workers.alarm.drift_report import (
    Attribution,
    advised,
    effect_of,
    of_slices,
    title_of,
    who_alarms,
    words_document,
)
from calibrant_server.workers.alarm.episodes import OPEN, Episode, episode_id, log10_of_p
from calibrant_server.workers.alarm.words_of import AlarmSnapshot, words_of
from calibrant_server.workers.ingest.record_store import forget
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig


def advance_cohort(writing: AlarmCommit, start_s: int, evidence: CohortEvidence) -> list[Episode]:
    """Advance the detectors of a model by the cohort that is sealed in this commit; return the alarms that were raised.

    start_s : its start in seconds since the epoch. Cohorts come in order; one that was processed before changes nothing
    """
    settings, state = writing.settings, writing.alarm_state
    names = watched(state.detectors, [*evidence.cohorts, *evidence.passed], settings)
    begun = Detector.begin(settings, state.active_map)
    before = {name: state.detectors.get(name) or begun for name in names}
    after: dict[str, Detector] = {}
    for name, each in before.items():
        is_same = each.made_of == settings.made_of
        again = each if is_same else promoted(each, settings, state.active_map)
        if name in evidence.cohorts and again.is_open(start_s):
            after[name] = _advanced(writing, name, again, start_s, evidence.cohorts[name], names)
        elif name in evidence.passed and again.is_open(start_s):
            why, n = evidence.passed[name], again.n_passed + 1
            after[name] = replace(again, last=start_s, n_passed=n, why_passed=why)
    if not after:
        return []
    state.detectors.update(after)
    raised = _episodes(writing, start_s, before, after)
    _note_units(writing, start_s, evidence.units, after)
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
    settings, state = writing.settings, writing.alarm_state
    level, before = settings.level(max(1, len(names))), state.reference.of(name, detector)
    new = CohortResult(start_s, 1.0, level, table).stored()
    results = [*state.cohort_results(name), new]
    found = advanced(detector, results, settings, level, n_judged(names, settings), before)
    writing.cohort_result(name, replace(new, p=found.p), [each.cohort for each in results], found)
    return found


def _episodes(
    writing: AlarmCommit, start_s: int, before: Mapping[str, Detector], after: dict[str, Detector]
) -> list[Episode]:
    """Close the episodes that ended and open those of changes shown at this cohort."""
    raised: list[Episode] = []
    who = who_alarms(writing.alarm_state, before)  # the watched detectors only
    for name, each in list(after.items()):
        ended = before[name].episode
        if ended is not None and each.episode is None:
            writing.close(ended, "the settings of the alarm changed")
        if each.change is None or each.change.alarmed_at != start_s:
            continue
        if each.episode is not None:
            writing.close(each.episode, "the detector raised another alarm")
        raised.append(_raised(writing, name, each.change, who))
        after[name] = replace(each, episode=raised[-1].id)
    return writing.raise_event(raised)


def _note_units(
    writing: AlarmCommit, start_s: int, units: FirstContacts | None, after: dict[str, Detector]
) -> None:
    """Write the units that were new in a cohort, and how many were left out."""
    name = detector_name(writing.settings.scopes[0], ALL_ROWS)
    main = after.get(name)
    if main is None or units is None:
        after |= {} if main is None else {name: replace(main, units=UNKNOWN)}
        return
    n_left_out = main.n_left_out + units.n_left_out
    after[name] = replace(main, units=FIRST_CONTACTS, n_left_out=n_left_out)
    if not len(units.new):
        return
    key = units_key(writing.commit.keys, writing.config.key, writing.config.generation)
    writing.commit.set_fields(key, {str(start_s): units.pack()})
    lost = writing.alarm_state.seen_units.forgotten(len(units.new))
    if lost:
        writing.commit.drop_fields(key, [str(start) for start in lost])


def _raised(
    writing: AlarmCommit, name: str, change: OpenChange, who: Attribution | None
) -> Episode:
    config, state, now_s = writing.config, writing.alarm_state, writing.now_s
    results, (scope, slice_) = state.cohort_results(name), parts_of(name)
    words = words_of(AlarmSnapshot(state, name), now_s)
    document = words_document(words)
    partition = writing.commit.keys.partition
    return Episode(
        id=episode_id(partition, config.key, config.generation, name, change.alarmed_at),
        tenant=config.tenant,
        model=config.model,
        generation=config.generation,
        scope=scope,
        slice=slice_,
        status=OPEN,
        title=title_of(name, who),
        number=state.next_number(),
        cohort=change.alarmed_at,
        bucket_s=writing.settings.bucket_s,
        start_of_change=change.start,
        evidence_log10=log10_of_p(change.p),
        threshold_log10=log10_of_p(results[-1].level),
        calibration=document["calibration"],
        change=document["change"],
        effect=effect_of(words.change, config.task) or {},
        recommendation=_recommendation(writing, name, since_change(results, change.start)[0], who),
        map_version=state.detectors[name].map_version,
        raised_s=now_s,
        changed_s=now_s,
    )


def _recommendation(
    writing: AlarmCommit, name: str, since: UnitTable, who: Attribution | None
) -> Advice:
    """Return what to do about a change that was just shown, with the request of the present recommendation."""
    config, tolerance, slice_ = writing.config, writing.settings.tolerance, parts_of(name)[1]
    # The table of a top label gives another temperature than its rows do; that of mapped scores another map than the scores as sent.
    is_binary = config.task == "binary" and writing.alarm_state.made_of.endswith("|None")
    advice = (
        recommended_action(since, None, tolerance) if is_binary else at_rows(config.model, slice_)
    )
    advice = of_slices(advice, writing.alarm_state, name)
    found = advised({**advice, "reason": of_slice(advice["action"], advice["reason"], slice_)}, who)
    return {"next": read_drift(config.model, slice_), **found}


def advanced(
    detector: Detector,
    results: Sequence[CohortResult],
    settings: AlarmSettings,
    level: float,
    n_words: int = 1,
    before: Before = Before(),  # noqa: B008
) -> Detector:
    """Return a detector after one more cohort, the last of its results; it is open to it and of the present settings.

    results : of its cohorts, in order, the new one included
    n_words : slices and classes that share the level of `off`
    """
    cohort = results[-1]
    begins = detector.begun is None and cohort.table.occupancy.sum() > 0
    ahead = replace(
        detector,
        begun=cohort.cohort if begins else detector.begun,
        last=cohort.cohort,
        total=merged([detector.total, cohort.table]),
    )
    if not cohort.is_labelled:
        return ahead
    ahead = _compared(ahead, results, level, before)
    recent = [each.table for each in ahead.recent(ahead.counted(results))]
    now = judge_cohorts(recent, settings.tolerance, n_words)
    return replace(ahead, words=ahead.words.turned(now, cohort.cohort, settings.tolerance))


def _compared(
    detector: Detector, results: Sequence[CohortResult], level: float, before: Before
) -> Detector:
    """Apply the rule of change to the cohorts since `begun`."""
    labelled = detector.compared(results, before)
    if not labelled:
        return detector
    tables = [*before.days, *(each.table for each in labelled)]
    effects = effects_of(tables, rated=before.block is None)
    found, n_days = evaluate(effects, level, before.block), len(before.days)
    ahead = replace(detector, p=found.p)
    if found.change is None or detector.change is not None:
        return ahead
    if not found.change.is_worse:
        return replace(ahead, improved_at=labelled[max(0, found.change.start - n_days)].cohort)
    change = OpenChange.of(found.change, labelled, before)
    return replace(ahead, change=change, words=ahead.words.at_change())


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
    state = AlarmState(node, keys, config)
    settings, begun = state.settings, state.partial_cohort
    bucket = start_s // settings.bucket_s * settings.bucket_s
    if begun is not None and begun.start_s != bucket:
        _advance(commit, state, begun)
        begun = None
    contents = CohortContents.of(panes.get(ALL_ROWS), range(start_s, end_s, config.pane_s))
    begun = begun or PartialCohort(bucket, bucket + settings.bucket_s, {}, state.made_of)
    cohort = begun.joined(tables_of(settings, panes, state.active_map), contents, state.made_of)
    if end_s >= cohort.end_s:
        _advance(commit, state, cohort)
    else:
        commit.set_fields(keys.partial_cohorts, {_field(config): cohort.pack()})


def close_partial_cohort(
    node: Any, keys: PartitionKeys, config: ModelConfig, sealed_until_s: float
) -> Commit | None:
    """Return the commit that advances detectors by a collected cohort that can no longer grow, or None."""
    state = AlarmState(node, keys, config)
    cohort = None if config.label_horizon_s is None else state.partial_cohort
    if cohort is None or cohort.end_s > sealed_until_s:
        return None
    commit = Commit(keys)
    _advance(commit, state, cohort)
    return commit


def _advance(commit: Commit, state: AlarmState, cohort: PartialCohort) -> None:
    """Advance detectors by a cohort and drop its collected parts."""
    advance_cohort(AlarmCommit(commit, state), cohort.start_s, evidence_of(state, cohort))
    commit.drop_fields(commit.keys.partial_cohorts, [_field(state.config)])
    forget(commit, commit.keys, state.config, cohort.contents.starts)


def _field(config: ModelConfig) -> str:
    return f"{config.key}|{config.generation}"
