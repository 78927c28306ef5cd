"""The words of a model from the stored state of its alarm, at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from calibrant.drift.calibration import N_RECENT, OFF, phi_of, selection_of
from calibrant.drift.evaluation import Monitor, effects_of, judge_cohorts
from calibrant.drift.phrases import event_text
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.unlabelled_scores import Shift, shift_of
from calibrant.drift.words import (
    CHANGED,
    NO_LABELS,
    NO_PREDICTIONS,
    NONE_SEEN,
    NOT_ARMED,
    CalibrationState,
    ChangeState,
    ChangeWord,
    ScoresState,
    Status,
    coverage_fell,
    status_of,
)
from calibrant_server.workers.alarm.alarm_state import AlarmSnapshot
from calibrant_server.workers.alarm.cohorts import is_of_all, parts_of, rater_in
from calibrant_server.workers.alarm.detectors import OpenChange, n_judged, n_requested, requested
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_events import events_between, seconds_of

DAY_S = 86_400
# Predictions, and labels after their horizon, are missing after so many label horizons.
MISSING_AFTER = 2
MAX_NAMED_EVENTS = 3


@dataclass(frozen=True)
class ModelWords:
    """The words of a model or slice; see `calibrant.drift.words`."""

    calibration: CalibrationState
    change: ChangeState
    scores: ScoresState

    @property
    def status(self) -> Status:
        """The derived status."""
        return status_of(self.calibration, self.change, self.scores)


def words_of(
    alarm: AlarmSnapshot, now_s: float, last_s: int | None = None, live: Shift | None = None
) -> ModelWords:
    """Return the words of a detector at a time.

    Parameters
    ----------
    now_s : seconds since the epoch
    last_s : end of the last predictions, None without any
    live : shift of the scores of the last days, sealed or not
    """
    calibration, change = _calibration(alarm), change_of(alarm, now_s, last_s)
    is_known = calibration.word != "unknown" and change.word in (NONE_SEEN, CHANGED)
    return ModelWords(calibration, change, _scores(alarm, live, is_known))


def _calibration(alarm: AlarmSnapshot) -> CalibrationState:
    settings, words, sealed = alarm.state.settings, alarm.watched.words, alarm.counted
    n = n_judged(alarm.state.detectors, settings)
    now = judge_cohorts([each.table for each in alarm.recent], settings.tolerance, n)
    word = words.calibration if words.tolerance == settings.tolerance else now.word
    return CalibrationState(
        word,
        now,
        settings.tolerance,
        selection_of(merged(each.table for each in sealed[-N_RECENT:])),
        _slices_off(alarm) if is_of_all(alarm.name) else {},
        n - 1,
        is_since_start=word == OFF and not words.was_good,
        since=words.since,
        coverage_fell=coverage_fell(
            [each.table.labelled_share for each in sealed if each.table.predictions.any()]
        ),
    )


def _slices_off(alarm: AlarmSnapshot) -> dict[str, float]:
    """Return the limit of the error of each slice and further class that is off."""
    found = {}
    for name in requested(alarm.state.detectors, alarm.state.settings):
        words = alarm.state.detectors[name].words
        if name != alarm.name and rater_in(name) is None and words.calibration == OFF:
            scope, slice_ = parts_of(name)
            found[slice_ or scope] = words.limit or 0.0
    return found


def change_of(alarm: AlarmSnapshot, now_s: float, last_s: int | None) -> ChangeState:
    """Return the word of change of a detector; see `words_of`."""
    detector, bucket_s = alarm.watched, alarm.state.settings.bucket_s
    if detector.change is not None:
        return _changed(alarm, detector.change)
    n, missing = sum(each.table.n_units for each in alarm.labelled), _missing(alarm, now_s, last_s)
    if missing is not None:
        word, end_s = missing
        return ChangeState(word, n, last_at=end_s, acknowledged_at=detector.acknowledged_at)
    monitor = _monitor(alarm)
    wait = None if monitor is None else monitor.armed_in
    return ChangeState(
        NONE_SEEN if wait == 0 else NOT_ARMED,
        n,
        smallest_points=None if monitor is None else monitor.smallest_points,
        armed_at=(detector.last or 0) + (wait + 1) * bucket_s if wait else None,
        acknowledged_at=detector.acknowledged_at,
        is_by_day=bucket_s >= DAY_S,
    )


def _changed(alarm: AlarmSnapshot, change: OpenChange) -> ChangeState:
    config, bucket_s = alarm.state.config, alarm.state.settings.bucket_s
    sides = sides_of(alarm, change.start)
    return ChangeState(
        CHANGED,
        sides[1].n_units,
        change.start,
        change.earliest,
        change.latest,
        sides,
        config.task == "binary",
        change.of_reference,
        is_by_day=bucket_s >= DAY_S,
        events=_events_about(change, config, bucket_s),
    )


def _events_about(
    change: OpenChange, config: ModelConfig, length_s: int
) -> tuple[tuple[str, float], ...]:
    """Return the events from one cohort before the range of DATE to one after it, at most three."""
    first, last = change.earliest - length_s, change.latest + 2 * length_s
    found = events_between(config, first, last)[:MAX_NAMED_EVENTS]
    return tuple((event_text(each["kind"], each["name"]), seconds_of(each)) for each in found)


def sides_of(alarm: AlarmSnapshot, start_s: int) -> tuple[UnitTable, UnitTable]:
    """Return the labelled units before and since the start of an open change."""
    reference, labelled = alarm.state.reference.tables.get(alarm.name), alarm.labelled
    before = [each.table for each in labelled if each.cohort < start_s]
    before += [] if reference is None else [reference]
    return merged(before), merged(each.table for each in labelled if each.cohort >= start_s)


def _missing(
    alarm: AlarmSnapshot, now_s: float, last_s: int | None
) -> tuple[ChangeWord, int | None] | None:
    """Return which data are missing, and the end of the last.

    Labels are missing among the cohorts that are sealed: while a history is still being sealed, its labels are not known yet.
    """
    length_s, horizon_s = alarm.state.settings.bucket_s, alarm.state.config.label_horizon_s or 0
    patience_s = MISSING_AFTER * max(horizon_s, length_s)
    if last_s is None or now_s - last_s > patience_s:
        return NO_PREDICTIONS, last_s
    ends = [each.cohort + length_s for each in alarm.labelled[-1:]]
    sealed_s = [each.cohort + 2 * length_s + horizon_s for each in alarm.results[-1:]]
    if not ends or min([now_s, *sealed_s]) - ends[0] > patience_s + horizon_s + length_s:
        return NO_LABELS, ends[0] if ends else None
    return None


def _monitor(alarm: AlarmSnapshot) -> Monitor | None:
    """Return what the rule could show now; None without labels."""
    tables, block = [each.table for each in alarm.labelled], alarm.before.block
    if not tables:
        return None
    effects, recent = effects_of(tables), tables[-N_RECENT:]
    return Monitor(
        UnitTable(*(merged(recent).columns / len(recent))),
        alarm.state.settings.level(n_requested(alarm.state.detectors, alarm.state.settings)),
        len(tables),
        effects.variance.sum(axis=0) + (0.0 if block is None else block.variance[0]),
        phi_of(effects.errors.T, effects.variance.T),
        has_block=block is not None,
    )


def _scores(alarm: AlarmSnapshot, live: Shift | None, is_known: bool) -> ScoresState:
    """Return the shift of the scores of sealed cohorts, or of the last days where these do not show one."""
    found, results = None, alarm.counted
    if results:
        days = [datetime.fromtimestamp(each.cohort, UTC).weekday() for each in results]
        occupancy = np.stack([each.table.occupancy for each in results])
        found = shift_of(occupancy, days if alarm.state.settings.bucket_s == DAY_S else None)
    if live is not None and (found is None or (live.is_shifted and not found.is_shifted)):
        return ScoresState.of(live, is_known)
    start = None if found is None or found.start is None else results[found.start].cohort
    return ScoresState.of(found, is_known, start)
