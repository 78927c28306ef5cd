"""The evidence of a complete cohort for each detector, from its panes or, where they contain more, from its rows.

Rows are the retained records of all panes of the cohort, with ratings, raters, units and complete probabilities. They are read
in the commit that advances the detectors. If each prediction has an id, they replace the panes' tables. Otherwise only
the tables of single raters come from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import FittedMap
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.row_tables import row_table
from calibrant.drift.unit_tables import UnitTable
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.alarm.alarm_settings import ActiveMap, AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import (
    RATER,
    CohortContents,
    FirstContacts,
    PartialCohort,
    detector_name,
)
from calibrant_server.workers.alarm.detectors import watched_raters
from calibrant_server.workers.join.identified_rows import IdentifiedRows

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
    cohorts : table by detector
    passed : why there is none, by detector of all rows (a code of `WHY_PASSED`)
    units : new and returning units; None if units are not known by name and row
    """

    cohorts: Mapping[str, UnitTable]
    passed: Mapping[str, str] = field(default_factory=dict)
    units: FirstContacts | None = None


def evidence_of(state: AlarmState, sealed: PartialCohort) -> CohortEvidence:
    """Return the complete evidence of a cohort for its detectors."""
    settings, cohorts, contents, units = state.settings, sealed.cohorts, sealed.contents, None
    if _takes_rows(state, sealed):
        rows, are_all = state.rows(contents)
        batch = rows.batch(state.config.task)
        if batch is not None:
            batch = replace(batch, weights=None, cases=None)  # each row counts once
            if are_all and contents.has_units:
                rows, batch, units = state.seen_units.without(rows, batch, sealed.start_s)
            is_complete = are_all and not contents.has_histograms
            found = _RowCohorts(rows, batch, settings, state.active_map)
            if is_complete or settings.rater is not None:
                cohorts = found.of_slices()
            cohorts = {**cohorts, **found.of_raters(watched_raters(state.detectors, rows.raters, settings))}  # fmt: skip
    wanted = [detector_name(scope, ALL_ROWS) for scope in settings.scopes]
    has_data = contents.n or contents.has_histograms
    missing = [name for name in wanted if name not in cohorts] if has_data else []
    why = _why(settings, state.active_map, contents)
    return CohortEvidence(cohorts, dict.fromkeys(missing, why), units)


def _takes_rows(state: AlarmState, sealed: PartialCohort) -> bool:
    settings, contents = state.settings, sealed.contents
    names = (detector_name(scope, ALL_ROWS) for scope in settings.scopes)
    return bool(
        settings.rater is not None
        or any(name not in sealed.cohorts for name in names)
        or (settings.is_mapped and state.active_map.version is not None)
        or contents.has_units
        or contents.has_ratings
        or state.is_rated
    )


@dataclass(frozen=True)
class _RowCohorts:
    """Cohorts of detectors from rows; none if the active map cannot be read."""

    rows: IdentifiedRows
    batch: Batch
    settings: AlarmSettings
    active_map: ActiveMap

    def of_slices(self) -> dict[str, UnitTable]:
        """Return the cohort of each detector except the raters' own."""
        rater, raters = self.settings.rater, self.settings.policy
        batch = self.batch if rater is None else self._rated_by(rater)
        found: dict[str, UnitTable] = {}
        for slice_, index in self._slices().items():
            part = batch if slice_ == ALL_ROWS else batch.take(index)
            for scope in self.settings.scopes:
                found |= self._cohort(detector_name(scope, slice_), part, scope, raters)
        return found

    def of_raters(self, names: list[str]) -> dict[str, UnitTable]:
        """Return the cohort of each named rater's own detector: all rows, labelled by that rater alone."""
        found: dict[str, UnitTable] = {}
        for rater in names:
            name, scope = detector_name(f"{RATER}{rater}", ALL_ROWS), self.settings.scopes[0]
            found |= self._cohort(name, self._rated_by(rater), scope, "mean")
        return found

    def _cohort(self, name: str, batch: Batch, scope: str, raters: str) -> dict[str, UnitTable]:
        if self.settings.is_mapped and self.active_map.is_lost:
            return {}
        fitted: FittedMap | None = self.active_map.fitted if self.settings.is_mapped else None
        return {name: row_table(batch, scope, raters, fitted)}

    def _rated_by(self, rater: str) -> Batch:
        """Return the batch of the rows with one rater's labels only."""
        classes = self.rows.classes_of(rater)
        own = np.flatnonzero(classes != WITHDRAWN)
        return replace(self.batch, ratings=Ratings(own, classes[own], np.ones(len(own), np.int64)))

    def _slices(self) -> Mapping[str, np.ndarray]:
        places: dict[str, list[int]] = {ALL_ROWS: list(range(len(self.rows)))}
        for place, pairs in enumerate(self.rows.names.slices_of_rows()):
            for key, value in pairs:
                places.setdefault(f"{key}:{value}", []).append(place)
        return {name: np.array(found, np.int64) for name, found in sorted(places.items())}


def _why(settings: AlarmSettings, active_map: ActiveMap, contents: CohortContents) -> str:
    if settings.is_mapped and active_map.is_lost:
        return MAP_LOST
    if settings.rater is not None:
        return ONE_RATER
    fitted: Mapping[str, Any] = (settings.is_mapped and active_map.fitted) or {}
    if fitted.get("scope") == "full":
        return COMPLETE_ROWS
    return SHARED_UNITS if contents.n else HISTOGRAMS
