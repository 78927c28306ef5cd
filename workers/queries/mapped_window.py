"""The calibration of mapped scores in a window without detector: of predictions after the data that the map was fitted to."""

from __future__ import annotations

import numpy as np

from calibrant.core.available_rows import bounded
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.drift.calibration import judge
from calibrant.drift.cohort_tables import OWN_SCORE, cohort_table, row_table
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.words import CalibrationState
from calibrant_server.workers.alarm.alarm_settings import ActiveMap, AlarmSettings
from calibrant_server.workers.alarm.words_of import AlarmSnapshot
from calibrant_server.workers.store.windows import Window

NO_LATER = "no labelled prediction came after the data of its fit"
NOT_COMPLETE = "no labels of predictions after the data of its fit are complete"


def window_after(alarm: AlarmSnapshot, pane_s: int) -> Window:
    """Return the part of the requested window that the active map was not fitted to; all of it if no map is evaluated."""
    active, window = alarm.state.active_map, alarm.window
    if not alarm.state.settings.is_mapped or active.fitted_to_s is None:
        return window
    first_s = -(-active.fitted_to_s // pane_s) * pane_s
    return Window(min(max(window.from_s, first_s), window.to_s), window.to_s)


def mapped_calibration(alarm: AlarmSnapshot, has_horizon: bool) -> CalibrationState:
    """Return the word of calibration under the active map; with a label horizon, that nothing is complete yet."""
    settings, active = alarm.state.settings, alarm.state.active_map
    pane = None if has_horizon or alarm.unwatched is None else alarm.unwatched()
    table = UnitTable.empty() if pane is None else mapped_table(pane, settings, active)
    found, why = judge(table, tolerance=settings.tolerance), None
    if not table.n_units:
        why = f"map version {active.version} is in use, and {NOT_COMPLETE if has_horizon else NO_LATER}"
    return CalibrationState(found.word, found, settings.tolerance, why_not=why)


def mapped_table(pane: Pane, settings: AlarmSettings, active: ActiveMap) -> UnitTable:
    """Return the table of mapped scores: of cells, or of the stored sample's rows for a map of complete rows."""
    if active.fitted is None:
        return UnitTable.empty()
    found = cohort_table(pane, OWN_SCORE, settings.policy, dict(active.fitted))
    if found is not None or not pane.keeps("sample") or not pane.sample.n:
        return UnitTable.empty() if found is None else found
    return row_table(sampled_rows(pane), OWN_SCORE, settings.policy, dict(active.fitted))


def sampled_rows(pane: Pane) -> Batch:
    """Return the rows of the stored sample; equal rows without ids, which are stored once, as often as they came."""
    times = bounded(pane.sample.arrays()["counts"])
    return pane.sample.batch().take(np.repeat(np.arange(len(times)), times))
