"""The drift report: a detector's verdict with labels, raters, agreement and the other detectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calibrant.core.documents import Result, Row
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.description import description
from calibrant.drift.effect import bin_rows
from calibrant.drift.mapped_scores import OWN_SCORE
from calibrant.drift.summary import summary
from calibrant.drift.unit_tables import merged
from calibrant.drift.verdict import verdict
from calibrant.raters.label_coverage import coverage, coverage_of
from calibrant_server.workers.alarm.alarm_snapshot import AlarmSnapshot
from calibrant_server.workers.alarm.cohort_evidence import WHY_PASSED
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.cohorts import detector_name, parts_of, rater_in
from calibrant_server.workers.alarm.detector_advance import (
    advised,
    since_change,
    title_of,
    who_alarms,
)
from calibrant_server.workers.alarm.detectors import Detector, flagged_names, n_requested, requested
from calibrant_server.workers.alarm.episodes import at, interval, log10_of
from calibrant_server.workers.alarm.seen_units import FIRST_CONTACTS, UNKNOWN
from calibrant_server.workers.alarm.settings import AlarmSettings

_SHOWN_AGREEMENT = 30
_SHOWN_COHORTS = 120
NO_CLAIM = (
    "No false-alarm rate is claimed: a unit that is in several cohorts counts in each. To count it once, send predictions with ids "
    "that name their units (at most 200,000 per cohort)."
)
_LN10 = math.log(10.0)


def report_of(
    detector: Detector,
    settings: AlarmSettings,
    alarm: AlarmSnapshot,
    seed: int,
    recommendation: Mapping[str, Any] | None = None,
) -> Result:
    """Return the verdict of a detector that has a state, as JSON values; `recommendation` is that of an alarm."""
    state = detector.state
    assert state is not None
    start, alarmed_at = alarm.change
    since, later = detector.baseline, None
    if alarmed_at is not None:
        since, later = since_change(alarm.cohort_results, start, alarmed_at)
    found = verdict(
        state,
        settings.threshold(n_requested(alarm.detectors, settings)),
        settings.run_length,
        detector.baseline,
        since,
        later=later,
        shift=detector.watch,
        coverage=_coverage(detector, alarm),
        description=description(detector.baseline, seed),
        recommendation=recommendation,
    )
    kept_from = alarm.cohort_results[0].cohort if alarm.cohort_results else None
    found["dispersion"]["run_in_days"] = found["dispersion"]["run_in"] * settings.bucket_s / 86400
    found["start_of_change"] = None if start is None else at(start)
    found["effect_since"] = found["start_of_change"]
    if start is not None and kept_from is not None and start < kept_from:
        found["effect_since"] = at(kept_from)
    found["alarmed_at"] = alarmed_at
    for name in ("alarmed_at", "acknowledged_at", "last_cohort"):
        found[name] = interval_of(found[name], settings)
    passed = skipped_cohorts(detector)
    if found["status"] == "insufficient_data":
        if passed["n"]:
            found["reason"] += f"; {passed['n']} were skipped: {passed['detail']}"
        found["reason"] += closed_by_map(alarm, settings)
    who = who_alarms({name: alarm.detectors[name] for name in requested(alarm.detectors, settings)})
    if detector.in_alarm:
        found["recommendation"] = advised(found["recommendation"], who)
    return found | {
        "recent": [
            _recent(cohort_result) for cohort_result in alarm.cohort_results[-_SHOWN_COHORTS:]
        ],
        "bins_since_change": None
        if later is None
        else [_since(row) for row in bin_rows(merged([since, later]))],
        "title": _title(detector, alarm, who),
        "summary": summary(found),
        "scores": settings.scores,
        "map_version": alarm.active_map.version,
        "cohorts_passed_over": passed,
        "labels": _labels(settings, alarm),
        "units": _units(settings, alarm),
        "rater_or_model": who,
    }


def closed_by_map(alarm: AlarmSnapshot, settings: AlarmSettings) -> str:
    """Return why earlier cohorts do not count and what to do, if the active map was fitted to them; else nothing."""
    active = alarm.active_map
    if not settings.is_mapped or active.fitted_to_s is None:
        return ""
    return (
        f". Cohorts before {at(active.fitted_to_s)[:10]} do not count: map version {active.version} was fitted to data up to then, and "
        "these cannot show whether it is right. A verdict follows when later predictions have labels and are older than the label "
        "horizon. To evaluate earlier data now, promote a map whose window ends before them"
    )


def _title(
    detector: Detector, alarm: AlarmSnapshot, who: Mapping[str, object] | None
) -> str | None:
    """Return the current subject of the alarm or, once it is acknowledged, its former subject."""
    if detector.in_alarm:
        return title_of(alarm.name, who)
    return None if alarm.episode is None else alarm.episode.title


def _recent(cohort_result: CohortResult) -> Result:
    """Return a recent cohort as a point of the curve."""
    return {
        "from": at(cohort_result.cohort),
        "evidence_log10": log10_of(cohort_result.log_evidence),
        "sr_log10": log10_of(cohort_result.log_sr),
        "threshold_log10": cohort_result.log_threshold / _LN10,
    }


def _since(row: Row) -> Result:
    """Return a bin since the change. Its start was chosen from the same data, so no confidence sequence holds."""
    return {
        name: row[name]
        for name in ("lower", "upper", "n_units", "mean_confidence", "accuracy", "gap")
    }


def interval_of(cohort: int | None, settings: AlarmSettings) -> dict[str, str] | None:
    """A cohort as an interval."""
    return None if cohort is None else interval(cohort, settings.bucket_s)


def skipped_cohorts(detector: Detector) -> Result:
    """Return the cohorts that a detector skipped, with reasons."""
    why = detector.why_passed
    return {
        "n": detector.n_passed,
        "reason": why,
        "detail": None if why is None else WHY_PASSED[why],
    }


def others_of(alarm: AlarmSnapshot, settings: AlarmSettings) -> list[Row]:
    """Return each other detector of a slice or class in one entry, flagged ones first."""
    marked = flagged_names(alarm.detectors, settings)
    others = [
        name
        for name in sorted(requested(alarm.detectors, settings))
        if name != alarm.name and rater_in(name) is None
    ]
    order = [name for name in marked if name in others]
    order += [name for name in others if name not in marked]
    rows = []
    for name in order:
        scope, slice_ = parts_of(name)
        shown = {"scope": None if scope == OWN_SCORE else scope, "slice": slice_ or None}
        rows.append(
            shown | {"flagged": name in marked} | _line(alarm.detectors[name], alarm, settings)
        )
    return rows


def _line(detector: Detector, alarm: AlarmSnapshot, settings: AlarmSettings) -> Result:
    state = detector.evidence
    return {
        "in_alarm": detector.in_alarm,
        "n_units": detector.baseline.n_units,
        "evidence_log10": None if state is None else log10_of(state.log_mixed_evidence),
        "sr_log10": None if state is None else log10_of(state.log_mixed_sr),
        "threshold": settings.threshold(n_requested(alarm.detectors, settings)),
        "alarm": detector.episode,
    }


def _coverage(detector: Detector, alarm: AlarmSnapshot) -> Result:
    """Return label coverage and delays as sealed."""
    reported = coverage_of(detector.coverage)
    if alarm.sealed is None or rater_in(alarm.name) is not None:
        return reported | {"gradient": None, "delay": None}
    reported_coverage = coverage(alarm.sealed)
    return reported | {
        "gradient": reported_coverage["gradient"],
        "delay": reported_coverage["delay"],
    }


def _units(settings: AlarmSettings, alarm: AlarmSnapshot) -> Result:
    """Return how units that recur are counted, and the false-alarm rate that is claimed: none if units are not known."""
    main = alarm.detectors.get(detector_name(settings.scopes[0], ALL_ROWS))
    rule = UNKNOWN if main is None or main.units is None else main.units
    is_known = rule == FIRST_CONTACTS
    return {
        "rule": rule,
        "n_left_out": main.n_left_out if main is not None and is_known else None,
        "claim": settings.false_alarms if is_known else None,
        "detail": None if is_known else NO_CLAIM,
    }


def _labels(settings: AlarmSettings, alarm: AlarmSnapshot) -> Result:
    """Return raters' own detectors, their number and agreement, and what was not counted."""
    last = max(alarm.rater_results, default=None)
    cohort_result = None if last is None else alarm.rater_results[last]
    rows = [
        {"rater": rater} | _line(alarm.detectors[name], alarm, settings)
        for name in sorted(requested(alarm.detectors, settings))
        if (rater := rater_in(name)) is not None
    ]
    counts = {} if alarm.sealed is None else alarm.sealed.counts
    split = None if alarm.sealed is None else alarm.sealed.units_split["n"]
    return {
        "policy": settings.raters,
        "n_ratings": counts.get("n_ratings"),
        "n_units_split": split,
        "n_duplicates_dropped": alarm.n_duplicates,
        "n_raters": None if cohort_result is None else cohort_result.n_raters,
        "n_raters_over": None if cohort_result is None else cohort_result.over,
        "raters": rows,
        "agreement": {
            "alpha": None if cohort_result is None else cohort_result.alpha,
            "n": None if cohort_result is None else cohort_result.n,
            "cohorts": [
                {"cohort": interval_of(start, settings), "alpha": each.alpha, "n": each.n}
                for start, each in sorted(alarm.rater_results.items())[-_SHOWN_AGREEMENT:]
            ],
        },
    }
