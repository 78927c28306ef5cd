"""The evidence of a complete cohort for each detector, from its panes or, where they contain more, from its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.active_map import ActiveMap
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_rows import (
    agreement_of,
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
class RaterResult:
    """Raters of a cohort.

    Attributes
    ----------
    raters : number of rated predictions by name, for raters with their own detector
    n_raters : number of named raters
    over : number of named raters without their own detector
    alpha, n : Krippendorff's alpha of all ratings, and the predictions with several
    """

    raters: dict[str, int] = field(default_factory=dict)
    n_raters: int = 0
    over: int = 0
    alpha: float | None = None
    n: int = 0

    def to_json(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> RaterResult:
        """Read the stored form; skip names of later versions."""
        stored = json.loads(text)
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})


@dataclass(frozen=True)
class CohortEvidence:
    """Evidence for detectors.

    Attributes
    ----------
    cohorts : cohorts by detector
    passed : why there is none, by detector of all rows (a code of `WHY_PASSED`)
    raters : raters of the cohort; None if none is known
    units : new and returning units; None if units are not known by name and row
    """

    cohorts: Mapping[str, DetectorCohort]
    passed: Mapping[str, str] = field(default_factory=dict)
    raters: RaterResult | None = None
    units: FirstContacts | None = None


def evidence_of(
    alarm_state: AlarmState, settings: AlarmSettings, partial_cohort: PartialCohort
) -> CohortEvidence:
    """Return the complete evidence of a cohort for its detectors."""
    active_map, cohorts, raters = alarm_state.active_map, dict(partial_cohort.cohorts), None
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
            counted = rows.rows.raters
            own = watched_raters(alarm_state.detectors, counted, settings)
            cohorts |= rater_cohorts(rows, batch, own, settings, active_map, partial_cohort.start_s)
            reported = agreement_of(batch)
            if counted or reported["n"]:
                shown = {name: counted[name] for name in own if name in counted}
                raters = RaterResult(shown, len(counted), len(counted) - len(shown), **reported)
    contents = partial_cohort.contents
    missing = [] if not contents.n and not contents.has_histograms else [
        name for scope in settings.scopes if (name := detector_name(scope, ALL_ROWS)) not in cohorts
    ]  # fmt: skip
    return CohortEvidence(
        cohorts, dict.fromkeys(missing, _why(settings, active_map, contents)), raters, units
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
