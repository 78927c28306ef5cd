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
from calibrant.drift.calibration import MIN_UNITS
from calibrant.drift.effect import effect, worst_bins
from calibrant.drift.evaluation import leans_towards
from calibrant.drift.rater_shift import rater_or_model
from calibrant.drift.recommendation import at_rows, of_raters, recommended_action
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_evidence import CohortEvidence, evidence_of
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.cohort_tables import tables_of
from calibrant_server.workers.alarm.cohorts import (
    CohortContents,
    DetectorCohort,
    PartialCohort,
    detector_name,
    parts_of,
    rater_in,
)
from calibrant_server.workers.alarm.detector_evaluation import advanced
from calibrant_server.workers.alarm.detectors import Detector, n_judged, renewed, skipped, watched
from calibrant_server.workers.alarm.episodes import OPEN, Episode, at, episode_id, log10_of_p
from calibrant_server.workers.alarm.seen_units import FIRST_CONTACTS, UNKNOWN, units_key
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
            after[name] = _advanced(writing, name, again, evidence.cohorts[name], names)
        elif name in evidence.passed:
            after[name] = skipped(again, start_s, evidence.passed[name])
    if not after:
        return []
    raised = _episodes(writing, start_s, before, after)
    _note_units(writing, start_s, evidence, after)
    writing.detectors(after)
    return raised


def _advanced(
    writing: AlarmCommit, name: str, detector: Detector, cohort: DetectorCohort, names: list[str]
) -> Detector:
    """Return a detector after one more cohort, whose result is written."""
    settings, level = writing.settings, writing.settings.level(max(1, len(names)))
    new = CohortResult(cohort.start_s, 1.0, level, cohort.table, cohort.coverage).stored()
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
    reported = who_alarms({**before, **after})  # of the watched detectors only
    for name, each in after.items():
        if before[name].episode is not None and each.episode is None:
            writing.close(str(before[name].episode), "the settings of the alarm changed")
        if each.change is None or each.change.alarmed_at != start_s:
            continue
        if each.episode is not None:
            writing.close(each.episode, "the detector raised another alarm")
        episode = _raised(writing, name, each, reported)
        after[name] = replace(each, episode=episode.id)
        raised.append(episode)
    return writing.raise_events(raised)


def who_alarms(detectors: Mapping[str, Detector]) -> dict[str, object] | None:
    """Attribute an alarm to model or rater from the raters' own detectors; None if there are none."""
    own = {rater: each for name, each in detectors.items() if (rater := rater_in(name)) is not None}
    changes = [each.change for each in own.values() if each.change is not None]
    # A rater with few cases raises no alarm whatever they rate.
    n_alarmed = [each.total.n_units for each in own.values() if each.in_alarm]
    least = max(MIN_UNITS, _COMPARABLE * min(n_alarmed, default=0.0))
    found = {
        rater: {
            "status": _status(each, least),
            "leans": any(leans_towards(each.leaning, one.direction, one.sign) for one in changes),
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
    return "ok" if detector.total.n_units >= least else "insufficient_data"


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


def _raised(
    writing: AlarmCommit,
    name: str,
    detector: Detector,
    reported: Mapping[str, object] | None,
) -> Episode:
    config, settings, change = writing.config, writing.settings, detector.change
    assert change is not None
    scope, slice_ = parts_of(name)
    results = writing.alarm_state.cohort_results(name)
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
        title=title_of(name, reported),
        number=writing.alarm_state.next_number(),
        cohort=change.alarmed_at,
        bucket_s=settings.bucket_s,
        start_of_change=change.start,
        evidence_log10=log10_of_p(change.p),
        threshold_log10=log10_of_p(results[-1].level),
        effect=effect(since) | {"worst_bins": worst_bins(since), "selected": True},
        recommendation=_recommendation(since, change.start, reported, config, settings.tolerance),
        map_version=detector.map_version,
        raised_s=writing.now_s,
        changed_s=writing.now_s,
    )


def _recommendation(
    since: UnitTable,
    start_s: int,
    reported: Mapping[str, object] | None,
    config: ModelConfig,
    tolerance: float,
) -> Advice:
    """Return what to do about a change that was just shown, with the request that does it."""
    is_binary = config.task == "binary"
    # The table of a top label gives another temperature than its rows do.
    advice = recommended_action(since, None, tolerance) if is_binary else at_rows()
    advice = advised(advice, reported)
    window = {"from": at(start_s), "clock": "sealed"}
    return {**advice, "next": next_request(advice["action"], config.model, is_binary, window)}


def since_change(
    results: list[CohortResult], start: int, until: int | None
) -> tuple[UnitTable, UnitTable]:
    """Return the cohorts from the start of a change until the alarm, and those after it."""
    begun = [each for each in results if each.cohort >= start]
    first = [each.table for each in begun if until is None or each.cohort <= until]
    later = [each.table for each in begun if until is not None and each.cohort > until]
    return merged(first), merged(later)
