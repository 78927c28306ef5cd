"""Advance of a model's drift detectors by a cohort, added to the commit that seals the cohort.

Functions here only add to a commit. Detectors, cohort results, episodes and deliveries change together with the seal of
the cohort, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from calibrant.core.actions import Advice, next_request
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.effect import effect, worst_bins
from calibrant.drift.recommendation import MIN_UNITS, at_alarm, of_raters
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.verdict import rater_or_model, tends_towards
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_evidence import CohortEvidence, RaterResult, evidence_of
from calibrant_server.workers.alarm.cohort_history import (
    CohortResult,
    cohort_result_of,
    end_of_selected,
    lost_cohort_results,
)
from calibrant_server.workers.alarm.cohorts import (
    CohortContents,
    PartialCohort,
    detector_name,
    parts_of,
    rater_in,
)
from calibrant_server.workers.alarm.detectors import (
    Detector,
    advanced,
    renewed,
    skipped,
    watched,
)
from calibrant_server.workers.alarm.episodes import OPEN, Episode, episode_id, log10_of
from calibrant_server.workers.alarm.seen_units import FIRST_CONTACTS, UNKNOWN, units_key
from calibrant_server.workers.alarm.tables import tables_of
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.model_config import ModelConfig

_COMPARABLE = 0.25
RATER_SHIFT = "rater shift"


def advance_detectors(
    commit: Commit,
    config: ModelConfig,
    cohort: int,
    panes_by_slice: Mapping[str, Pane],
    detector_states: AlarmState,
    *,
    token: bytes,
    now_s: float,
) -> list[Episode]:
    """Advance the detectors of a model by a cohort of one pane that is sealed in this commit.

    Parameters
    ----------
    commit : the commit that seals the cohort
    config : the model, with a label horizon
    cohort : its start in seconds since the epoch. Cohorts come in order; one that was processed before changes nothing
    panes_by_slice : the sealed panes of the cohort merged, `""` for all rows
    detector_states : the stored state
    token : token of the commit
    now_s : the clock

    Returns
    -------
    Episodes of the alarms that were raised.
    """
    writing = AlarmCommit(commit, config, detector_states, token, now_s)
    tables = tables_of(writing.settings, cohort, panes_by_slice, detector_states.active_map)
    contents = CohortContents.of(panes_by_slice.get(ALL_ROWS), [cohort])
    complete = PartialCohort(cohort, cohort + writing.settings.bucket_s, tables, contents=contents)
    return advance_cohort(writing, cohort, evidence_of(detector_states, writing.settings, complete))


def advance_cohort(writing: AlarmCommit, start_s: int, evidence: CohortEvidence) -> list[Episode]:
    """Like `advance_detectors`, from the evidence of each detector."""
    settings, alarm_state = writing.settings, writing.alarm_state
    names = watched(alarm_state.detectors, [*evidence.cohorts, *evidence.passed], settings)
    threshold = settings.threshold(max(1, len(names)))
    before = {
        name: alarm_state.detectors.get(name) or Detector.begin(settings, alarm_state.active_map)
        for name in names
    }
    after: dict[str, Detector] = {}
    cohort_results: dict[str, CohortResult] = {}
    for name, each in before.items():
        if not each.is_open(start_s):
            continue
        if name in evidence.cohorts:
            after[name] = advanced(
                each, evidence.cohorts[name], settings, threshold, alarm_state.active_map
            )
            if after[name].last == start_s:
                cohort_results[name] = cohort_result_of(
                    after[name], evidence.cohorts[name], threshold
                )
        elif name in evidence.passed:
            again = renewed(each, settings, alarm_state.active_map)
            after[name] = skipped(again, start_s, evidence.passed[name])
    if not after:
        return []
    raised = _episodes(writing, start_s, before, after, cohort_results, threshold)
    for name, cohort_result in cohort_results.items():
        writing.cohort_result(name, before[name].last, cohort_result)
    if evidence.raters is not None:
        _write_raters(
            writing,
            start_s,
            max((each.last or 0 for each in before.values()), default=0),
            evidence.raters,
        )
    _note_units(writing, start_s, evidence, after)
    writing.detectors(after)
    return raised


def _episodes(
    writing: AlarmCommit,
    start_s: int,
    before: Mapping[str, Detector],
    after: dict[str, Detector],
    cohort_results: Mapping[str, CohortResult],
    threshold: float,
) -> list[Episode]:
    """Close the episodes that ended and open those of alarms raised at this cohort."""
    raised: list[Episode] = []
    reported = who_alarms({**before, **after})  # of the watched detectors only
    for name, each in after.items():
        if before[name].episode is not None and each.episode is None:
            writing.close(str(before[name].episode), "the settings of the alarm changed")
        if each.state is None or each.state.alarmed_at != start_s:
            continue
        if each.episode is not None:
            writing.close(each.episode, "the detector raised another alarm")
        history = [*writing.alarm_state.cohort_results(name), cohort_results[name]]
        episode = _raised(writing, name, each, history, threshold, reported)
        after[name] = replace(each, episode=episode.id)
        raised.append(episode)
    return writing.raise_events(raised)


def who_alarms(detectors: Mapping[str, Detector]) -> dict[str, object] | None:
    """Attribute an alarm to model or rater from the raters' own detectors; None if there are none."""
    own = {rater: each for name, each in detectors.items() if (rater := rater_in(name)) is not None}
    alarmed = [each for each in own.values() if each.in_alarm]
    states = [each.state for each in alarmed if each.state is not None]
    # A rater with few cases raises no alarm whatever they rate.
    least = max(
        MIN_UNITS, _COMPARABLE * min((each.baseline.n_units for each in alarmed), default=0.0)
    )
    found = {
        rater: {
            "status": _status(each, least),
            "leans": each.state is not None and tends_towards(each.state, states),
        }
        for rater, each in own.items()
    }
    return rater_or_model(found) if found else None


def title_of(name: str, reported: Mapping[str, object] | None) -> str:
    """Return the title of an alarm: its subject, and the raters if only their labels changed."""
    if reported is not None and reported["title"] == RATER_SHIFT:
        raters = reported["raters"]
        assert isinstance(raters, list)
        return f"{RATER_SHIFT}: {', '.join(raters)}"
    if reported is not None and reported["title"] == "model drift":
        return "model drift"
    rater = rater_in(name)
    return "calibration drift" if rater is None else f"calibration drift in the labels of {rater}"


def advised(advice: Advice, reported: Mapping[str, object] | None) -> Advice:
    """Recommend an action on an alarm; ask the raters first if only their labels changed."""
    if reported is None or reported["title"] != RATER_SHIFT:
        return advice
    raters = reported["raters"]
    assert isinstance(raters, list)
    return of_raters(advice, raters)


def _status(detector: Detector, least: float) -> str:
    if detector.in_alarm:
        return "alarm"
    return "ok" if detector.baseline.n_units >= least else "insufficient_data"


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
    key = units_key(writing.commit.keys, writing.config)
    if len(evidence.units.new):
        writing.commit.set_fields(key, {str(start_s): evidence.units.pack()})
    lost = writing.alarm_state.seen_units.forgotten(len(evidence.units.new))
    if lost:
        writing.commit.drop_fields(key, [str(start) for start in lost])


def _write_raters(
    writing: AlarmCommit, start_s: int, last: int, cohort_result: RaterResult
) -> None:
    config = writing.config
    key = writing.commit.keys.rater_results(config.key, config.generation)
    writing.commit.set_fields(key, {str(start_s): cohort_result.to_json()})
    lost = lost_cohort_results("|", last or None, start_s, writing.settings.bucket_s)
    if lost:
        writing.commit.drop_fields(key, [str(start) for start in lost])


def _raised(
    writing: AlarmCommit,
    name: str,
    detector: Detector,
    cohort_results: list[CohortResult],
    threshold: float,
    reported: Mapping[str, object] | None,
) -> Episode:
    state, config, settings = detector.state, writing.config, writing.settings
    assert state is not None
    scope, slice_ = parts_of(name)
    cohort, start = int(state.alarmed_at or 0), state.start_of_change
    since = since_change(cohort_results, start, cohort)[0]
    return Episode(
        id=episode_id(writing.commit.keys.partition, config.key, config.generation, name, cohort),
        tenant=config.tenant,
        model=config.model,
        generation=config.generation,
        scope=scope,
        slice=slice_,
        status=OPEN,
        title=title_of(name, reported),
        number=writing.alarm_state.next_number(),
        cohort=cohort,
        bucket_s=settings.bucket_s,
        start_of_change=start,
        evidence_log10=log10_of(state.log_mixed_evidence),
        sr_log10=log10_of(state.log_mixed_sr),
        threshold=threshold,
        effect=effect(since) | {"worst_bins": worst_bins(since), "selected": True},
        recommendation=_recommendation(reported, config),
        map_version=detector.map_version,
        raised_s=writing.now_s,
        changed_s=writing.now_s,
    )


def _recommendation(reported: Mapping[str, object] | None, config: ModelConfig) -> Advice:
    """Return what to do about an alarm that was just raised, with the request that does it."""
    advice = advised(at_alarm(), reported)
    return {**advice, "next": next_request(advice["action"], config.model, config.task == "binary")}


def since_change(
    cohort_results: list[CohortResult], start: int | None, until: int | None
) -> tuple[UnitTable, UnitTable]:
    """Return the cohorts from the start of a change until the alarm, and those after it (`end_of_selected`)."""
    begun = [
        cohort_result
        for cohort_result in cohort_results
        if start is None or cohort_result.cohort >= start
    ]
    if until is not None:
        until = end_of_selected(cohort_results, start, until)
    first = [
        cohort_result.table
        for cohort_result in begun
        if until is None or cohort_result.cohort <= until
    ]
    later = [
        cohort_result.table
        for cohort_result in begun
        if until is not None and cohort_result.cohort > until
    ]
    return merged(first), merged(later)
