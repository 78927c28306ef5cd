"""The evidence of a complete cohort for each detector, from its panes or, where they contain more, from its rows.

Rows are the retained records of all panes of the cohort, with ratings, raters, units and complete probabilities. They are read
in the commit that advances the detectors. If each prediction has an id, they replace the panes' tables. Otherwise only
the tables of single raters come from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from calibrant.core.batch import Batch, Ratings
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.cohort_tables import row_table
from calibrant.drift.unit_tables import UnitTable
from calibrant.input.labels import WITHDRAWN
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

MAP_LOST, ONE_RATER, COMPLETE_ROWS = "map_lost", "one_rater", "whole_rows"
BEFORE_MAP = "before_map"
SHARED_UNITS, HISTOGRAMS = "shared_units", "histograms"
WHY_PASSED = {
    MAP_LOST: "the active calibration map cannot be read",
    ONE_RATER: "labels of one rater are known of predictions with ids only",
    COMPLETE_ROWS: "the active calibration map requires complete rows, which are stored for predictions with ids only",
    BEFORE_MAP: "they were sealed before the calibration map was promoted or the alarm's settings changed",
    SHARED_UNITS: "several predictions share a unit: classes are then evaluated "
    " only for predictions with ids (up to 200,000 per cohort)",
    HISTOGRAMS: "plain histograms are evidence only if they describe the score of the bets and give every unit weight one: the sum of "
    "count must be at most n_units (divide each unit's weight by its contributions, or send predictions or panes)",
}


@dataclass(frozen=True)
class CohortEvidence:
    """Evidence for detectors."""

    cohorts: Mapping[str, UnitTable]  # table by detector
    # why there is none, by detector of all rows (a code of `WHY_PASSED`)
    passed: Mapping[str, str] = field(default_factory=dict)
    # new and returning units; None if units are not known by name and row
    units: FirstContacts | None = None


def evidence_of(state: AlarmState, sealed: PartialCohort) -> CohortEvidence:
    """Return the complete evidence of a cohort for its detectors; what was sealed before a promotion is not evidence."""
    settings, contents, units = state.settings, sealed.contents, sealed.contents.units
    cohorts = sealed.under(state.made_of).cohorts
    wanted = [detector_name(scope, ALL_ROWS) for scope in settings.scopes]
    if _takes_rows(state, contents) or any(name not in cohorts for name in wanted):
        rows, are_all = state.rows(contents)
        batch = rows.batch(state.config.task)
        if batch is not None:
            batch = replace(batch, weights=None, cases=None)  # each row counts once
            if are_all and contents.has_units:
                rows, batch, units = state.seen_units.without(rows, batch, sealed.start_s)
            found = _RowCohorts(rows, batch, state)
            if (are_all and not contents.has_histograms) or settings.rater is not None:
                cohorts = found.of_slices()
            cohorts = {**cohorts, **found.of_raters()}
    has_data = contents.n or contents.has_histograms
    missing = [name for name in wanted if name not in cohorts] if has_data else []
    return CohortEvidence(cohorts, dict.fromkeys(missing, _why(state, sealed)), units)


def _takes_rows(state: AlarmState, contents: CohortContents) -> bool:
    """Whether rows contain more than the tables of panes."""
    settings = state.settings
    return bool(
        settings.rater is not None
        or (settings.is_mapped and state.active_map.version is not None)
        or contents.has_units
        or contents.has_ratings
        or state.is_rated
    )


@dataclass(frozen=True)
class _RowCohorts:
    """Tables of detectors from rows; none if the active map cannot be read."""

    rows: IdentifiedRows
    batch: Batch
    state: AlarmState

    def of_slices(self) -> dict[str, UnitTable]:
        """Return the table of each detector except the raters' own."""
        settings = self.state.settings
        batch = self.batch if settings.rater is None else self._rated_by(settings.rater)
        found: dict[str, UnitTable] = {}
        for slice_, index in self._slices().items():
            part = batch if slice_ == ALL_ROWS else batch.take(index)
            for scope in settings.scopes:
                name = detector_name(scope, slice_)
                found |= self._table(name, part, scope, settings.policy)
        return found

    def of_raters(self) -> dict[str, UnitTable]:
        """Return the table of each watched rater's own detector: all rows, labelled by that rater alone."""
        settings, found = self.state.settings, dict[str, UnitTable]()
        for rater in watched_raters(self.state.detectors, self.rows.raters, settings):
            name = detector_name(f"{RATER}{rater}", ALL_ROWS)
            found |= self._table(name, self._rated_by(rater), settings.scopes[0], "mean")
        return found

    def _table(self, name: str, batch: Batch, scope: str, raters: str) -> dict[str, UnitTable]:
        is_mapped, active_map = self.state.settings.is_mapped, self.state.active_map
        if is_mapped and active_map.is_lost:
            return {}
        return {name: row_table(batch, scope, raters, active_map.fitted if is_mapped else None)}

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


def _why(state: AlarmState, sealed: PartialCohort) -> str:
    settings, active_map = state.settings, state.active_map
    if settings.is_mapped and active_map.is_lost:
        return MAP_LOST
    if settings.rater is not None:
        return ONE_RATER
    if settings.is_mapped and (active_map.fitted or {}).get("scope") == "full":
        return COMPLETE_ROWS
    if sealed.made_of != state.made_of:
        return BEFORE_MAP
    return SHARED_UNITS if sealed.contents.n else HISTOGRAMS
