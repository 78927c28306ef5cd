"""What the words of a detector depend on: the evidence of `GET drift`, on request."""

from __future__ import annotations

from calibrant.core.documents import Result, Row
from calibrant.core.routing import ALL_ROWS
from calibrant.core.time_texts import day_of
from calibrant.drift.calibration import GOOD, OFF
from calibrant.drift.calibration import UNKNOWN as NOT_KNOWN
from calibrant.drift.cohort_tables import OWN_SCORE
from calibrant.drift.unit_tables import merged
from calibrant.results.drift_bins import bin_rows
from calibrant_server.workers.alarm.cohort_evidence import WHY_PASSED
from calibrant_server.workers.alarm.cohorts import (
    FIRST_CONTACTS,
    UNKNOWN,
    CohortResult,
    detector_name,
    is_of_all,
    parts_of,
    rater_in,
)
from calibrant_server.workers.alarm.detectors import Detector, flagged_names, n_requested
from calibrant_server.workers.alarm.episodes import at, log10_of_p
from calibrant_server.workers.alarm.words_of import AlarmSnapshot

SHOWN_COHORTS = 120
_WORDS = (OFF, NOT_KNOWN, GOOD)
NO_CLAIM = (
    "No false-alarm rate is claimed: a unit that is in several cohorts counts in each. To count it once, send predictions with ids "
    "that name their units (at most 200,000 per cohort)."
)


def evidence_of_words(alarm: AlarmSnapshot) -> Result:
    """Return what the words of a detector depend on."""
    detector, settings, change = alarm.watched, alarm.state.settings, alarm.watched.change
    before = [each.table for each in alarm.counted if not change or each.cohort < change.start]
    slices = {"slices": others_of(alarm)} if is_of_all(alarm.name) else {}
    return {
        "recent": recent_rows(alarm.results),
        "bins": bin_rows(merged(before)),
        "bins_since_change": bin_rows(merged(each.table for each in alarm.recent))
        if change
        else None,
        "p": detector.p,
        "level": settings.level(n_requested(alarm.state.detectors, settings)),
        "improved_at": None if detector.improved_at is None else at(detector.improved_at),
        "cohorts_passed_over": skipped_cohorts(detector),
        "raters": _raters(alarm),
        "units": _units(alarm),
        **slices,
    }


def closed_by_map(alarm: AlarmSnapshot) -> str:
    """Return why earlier cohorts do not count and what to do, if the active map was fitted to them; else nothing."""
    active, settings = alarm.state.active_map, alarm.state.settings
    if not settings.is_mapped or active.fitted_to_s is None:
        return ""
    passed = None if alarm.detector is None else alarm.detector.last
    last = active.closed_to(settings.bucket_s, passed) or 0
    first_s = last + 2 * settings.bucket_s + (alarm.state.config.label_horizon_s or 0)
    return (
        f". Map version {active.version} was fitted to data up to {day_of(active.fitted_to_s)}, so only later days count that are complete after "
        f"its promotion: the first verdict is expected about {day_of(first_s)}"
    )


def recent_rows(results: list[CohortResult]) -> list[Row]:
    """Return recent cohorts as points of a curve: −log10 of the p-value of a change, with that of its level."""
    return [
        {
            "from": at(each.cohort),
            "evidence_log10": log10_of_p(each.p),
            "threshold_log10": log10_of_p(each.level),
            "ece": each.table.ece,
        }
        for each in results[-SHOWN_COHORTS:]
    ]


def skipped_cohorts(detector: Detector) -> Result:
    """Return the cohorts that a detector skipped, with reasons."""
    why = detector.why_passed
    return {
        "n": detector.n_passed,
        "reason": why,
        "detail": None if why is None else WHY_PASSED[why],
    }


def others_of(alarm: AlarmSnapshot) -> list[Row]:
    """Return each other detector of a slice or class in one entry: flagged ones first, then those that are off, largest limit first."""
    found = {name: each for name, each in alarm.requested.items() if rater_in(name) is None}
    found.pop(alarm.name, None)
    others = dict(sorted(found.items(), key=lambda pair: place_in_list(pair[1])))
    marked = flagged_names(alarm.state.detectors, alarm.state.settings)
    rows = []
    for name in dict.fromkeys([name for name in marked if name in others] + list(others)):
        scope, slice_ = parts_of(name)
        shown = {"scope": None if scope == OWN_SCORE else scope, "slice": slice_ or None}
        rows.append(shown | {"flagged": name in marked} | _line(others[name]))
    return rows


def place_in_list(detector: Detector) -> tuple[int, float]:
    """Return the place in a list: a limit of `off` is a lower one, of other words an upper one, so they do not compare."""
    return _WORDS.index(detector.words.calibration), -(detector.words.limit or 0.0)


def _line(detector: Detector) -> Result:
    return {
        "in_alarm": detector.in_alarm,
        "calibration": detector.words.calibration,
        "value": detector.words.limit,
        "n_units": detector.total.n_units,
        "p": detector.p,
        "alarm": detector.episode,
    }


def _units(alarm: AlarmSnapshot) -> Result:
    """Return how units that recur are counted, and the false-alarm rate that is claimed: none if units are not known."""
    settings = alarm.state.settings
    main = alarm.state.detectors.get(detector_name(settings.scopes[0], ALL_ROWS))
    is_known = main is not None and main.units == FIRST_CONTACTS
    return {
        "rule": (None if main is None else main.units) or UNKNOWN,
        "n_left_out": main.n_left_out if main is not None and is_known else None,
        "claim": settings.false_alarms if is_known else None,
        "detail": None if is_known else NO_CLAIM,
    }


def _raters(alarm: AlarmSnapshot) -> list[Row]:
    """Return the raters' own detectors."""
    named = ((rater_in(name), each) for name, each in alarm.requested.items())
    return [{"rater": rater} | _line(each) for rater, each in named if rater is not None]
