"""The evidence of a complete cohort for each detector, from its panes or, where they contain more, from its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.active_map import ActiveMap
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_rows import (
    batch_of,
    rater_cohorts,
    row_cohorts,
)
from calibrant_server.workers.alarm.cohorts import (
    CohortContents,
    DetectorCohort,
    PartialCohort,
    detector_name,
)
from calibrant_server.workers.alarm.detectors import watched_raters
from calibrant_server.workers.alarm.seen_units import FirstContacts

MAP_LOST, ONE_RATER, COMPLETE_ROWS, SHARED_UNITS = (
    "map_lost",
    "one_rater",
    "whole_rows",
    "shared_units",
)
HISTOGRAMS = "histograms"
WHY_PASSED = {
    MAP_LOST: "the active calibration map cannot be read",
    ONE_RATER: "labels of one rater are known of predictions with ids only",
    COMPLETE_ROWS: "the active calibration map requires complete rows, which are stored for predictions with ids only",
    SHARED_UNITS: "several predictions share a unit: classes are then evaluated "
    " only for predictions with ids (up to 200,000 per cohort)",
    HISTOGRAMS: "plain histograms are evidence only if they describe the score of the bets and give every unit weight one: the sum of "
    "count must be at most n_units (divide each unit's weight by its contributions, or send predictions or panes)",
}


@dataclass(frozen=True)
class CohortEvidence:
    """Evidence for detectors.

    Attributes
    ----------
    cohorts : cohorts by detector
    passed : why there is none, by detector of all rows (a code of `WHY_PASSED`)
    units : new and returning units; None if units are not known by name and row
    """

    cohorts: Mapping[str, DetectorCohort]
    passed: Mapping[str, str] = field(default_factory=dict)
    units: FirstContacts | None = None


def evidence_of(
    alarm_state: AlarmState, settings: AlarmSettings, partial_cohort: PartialCohort
) -> CohortEvidence:
    """Return the complete evidence of a cohort for its detectors."""
    active_map, cohorts = alarm_state.active_map, dict(partial_cohort.cohorts)
    rows, units = None, None
    if _takes_rows(alarm_state, settings, partial_cohort):
        rows = alarm_state.rows(partial_cohort.contents)
        batch = batch_of(rows, alarm_state.config.task)
        if batch is not None:
            if rows.are_all and partial_cohort.contents.has_units:
                rows, batch, units = alarm_state.seen_units.without(
                    rows, batch, partial_cohort.start_s
                )
            if (
                rows.are_all and not partial_cohort.contents.has_histograms
            ) or settings.rater is not None:
                cohorts = row_cohorts(rows, batch, settings, active_map, partial_cohort.start_s)
            own = watched_raters(alarm_state.detectors, rows.rows.raters, settings)
            cohorts |= rater_cohorts(rows, batch, own, settings, active_map, partial_cohort.start_s)
    contents = partial_cohort.contents
    missing = [] if not contents.n and not contents.has_histograms else [
        name for scope in settings.scopes if (name := detector_name(scope, ALL_ROWS)) not in cohorts
    ]  # fmt: skip
    return CohortEvidence(
        cohorts, dict.fromkeys(missing, _why(settings, active_map, contents)), units
    )


def _takes_rows(
    alarm_state: AlarmState, settings: AlarmSettings, partial_cohort: PartialCohort
) -> bool:
    contents = partial_cohort.contents
    return bool(
        settings.rater is not None
        or any(
            detector_name(scope, ALL_ROWS) not in partial_cohort.cohorts
            for scope in settings.scopes
        )
        or (settings.is_mapped and alarm_state.active_map.version is not None)
        or contents.has_units
        or contents.has_ratings
        or alarm_state.is_rated
    )


def _why(settings: AlarmSettings, active_map: ActiveMap, contents: CohortContents) -> str:
    if settings.is_mapped and active_map.is_lost:
        return MAP_LOST
    if settings.rater is not None:
        return ONE_RATER
    fitted: Mapping[str, Any] = (settings.is_mapped and active_map.fitted) or {}
    if fitted.get("scope") == "full":
        return COMPLETE_ROWS
    return SHARED_UNITS if contents.n else HISTOGRAMS
