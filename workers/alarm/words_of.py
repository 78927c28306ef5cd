"""The words of a model from the stored state of its alarm, at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from calibrant.drift.calibration import N_RECENT, OFF, merged_counts, phi_of, selection_of
from calibrant.drift.evaluation import Monitor, effects_of, judge_cohorts
from calibrant.drift.occupancy_shift import Shift, shift_of
from calibrant.drift.unit_tables import UnitTable, merged
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
    event_text,
    status_of,
)
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmSnapshot
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.cohorts import is_of_all, parts_of, rater_in
from calibrant_server.workers.alarm.detectors import (
    Detector,
    OpenChange,
    n_judged,
    n_requested,
    requested,
)
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
    coverage_fell: bool = False

    @property
    def status(self) -> Status:
        """The derived status."""
        return status_of(self.calibration, self.change, self.scores, self.coverage_fell)


@dataclass(frozen=True)
class Present:
    """When a verdict is asked for.

    Attributes
    ----------
    now_s : seconds since the epoch
    last_s : end of the last predictions, None without any
    """

    now_s: float
    last_s: int | None


def words_of(
    detector: Detector,
    alarm: AlarmSnapshot,
    config: ModelConfig,
    present: Present,
    live: Shift | None = None,
) -> ModelWords:
    """Return the words of a detector.

    Parameters
    ----------
    detector : the requested one of the alarm
    live : shift of the scores of the last days, sealed or not
    """
    settings = AlarmSettings.of(config)
    results = detector.counted(alarm.cohort_results)
    calibration = _calibration(detector, results, alarm, settings)
    change = change_of(detector, alarm, config, present)
    is_known = calibration.word != "unknown" and change.word in (NONE_SEEN, CHANGED)
    shares = [_share(each) for each in results if each.coverage[0].any()]
    return ModelWords(
        calibration, change, _scores(results, settings, live, is_known), coverage_fell(shares)
    )


def _calibration(
    detector: Detector,
    results: Sequence[CohortResult],
    alarm: AlarmSnapshot,
    settings: AlarmSettings,
) -> CalibrationState:
    n = n_judged(alarm.detectors, settings)
    recent = [each.table for each in detector.recent(results)]
    now = judge_cohorts(recent, settings.tolerance, n)
    is_same = detector.words.tolerance == settings.tolerance
    word = detector.words.calibration if is_same else now.word
    sealed = results[-N_RECENT:]
    selection = selection_of(
        merged(each.table for each in sealed), merged_counts([each.coverage for each in sealed])
    )
    off = _slices_off(alarm, settings) if is_of_all(alarm.name) else {}
    return CalibrationState(
        word, now, settings.tolerance, selection, off, n - 1, word == OFF and not detector.words.was_good
    )  # fmt: skip


def _slices_off(alarm: AlarmSnapshot, settings: AlarmSettings) -> dict[str, float]:
    """Return the limit of the error of each slice and further class that is off."""
    found = {}
    for name in requested(alarm.detectors, settings):
        words = alarm.detectors[name].words
        if name != alarm.name and rater_in(name) is None and words.calibration == OFF:
            scope, slice_ = parts_of(name)
            found[slice_ or scope] = words.limit or 0.0
    return found


def change_of(
    detector: Detector, alarm: AlarmSnapshot, config: ModelConfig, present: Present
) -> ChangeState:
    """Return the word of change of a detector."""
    settings = AlarmSettings.of(config)
    labelled = detector.compared(alarm.cohort_results, alarm.reference.of(alarm.name))
    if detector.change is not None:
        return _changed(detector, labelled, alarm, config)
    missing = _missing(labelled, alarm.cohort_results, config, present)
    n = sum(each.table.n_units for each in labelled)
    if missing is not None:
        return ChangeState(
            missing[0], n, last_at=missing[1], acknowledged_at=detector.acknowledged_at
        )
    monitor = _monitor(labelled, alarm, settings)
    word: ChangeWord = NONE_SEEN if monitor is not None and monitor.shows_target else NOT_ARMED
    wait = None if monitor is None else monitor.armed_in
    last = detector.last or 0
    return ChangeState(
        word,
        n,
        smallest_points=None if monitor is None else monitor.smallest_points,
        armed_at=last + (wait + 1) * settings.bucket_s if wait else None,
        acknowledged_at=detector.acknowledged_at,
        is_by_day=settings.bucket_s >= DAY_S,
    )


def _changed(
    detector: Detector,
    labelled: Sequence[CohortResult],
    alarm: AlarmSnapshot,
    config: ModelConfig,
) -> ChangeState:
    change, bucket_s = detector.change, AlarmSettings.of(config).bucket_s
    assert change is not None
    sides = sides_of(detector, labelled, alarm)
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


def sides_of(
    detector: Detector, labelled: Sequence[CohortResult], alarm: AlarmSnapshot
) -> tuple[UnitTable, UnitTable]:
    """Return the labelled units before and since the start of an open change."""
    assert detector.change is not None
    start, reference = detector.change.start, alarm.reference.tables.get(alarm.name)
    before = [each.table for each in labelled if each.cohort < start]
    before += [] if reference is None else [reference]
    return merged(before), merged(each.table for each in labelled if each.cohort >= start)


def _missing(
    labelled: Sequence[CohortResult],
    sealed: Sequence[CohortResult],
    config: ModelConfig,
    present: Present,
) -> tuple[ChangeWord, int | None] | None:
    """Return which data are missing, and the end of the last.

    Labels are missing among the cohorts that are sealed: while a history is still being sealed, its labels are not known yet.
    """
    length_s = AlarmSettings.of(config).bucket_s
    horizon_s = config.label_horizon_s or 0
    patience_s = MISSING_AFTER * max(horizon_s, length_s)
    if present.last_s is None or present.now_s - present.last_s > patience_s:
        return NO_PREDICTIONS, present.last_s
    last_label_s = labelled[-1].cohort + length_s if labelled else None
    sealed_s = [each.cohort + 2 * length_s + horizon_s for each in sealed[-1:]]
    seen_s = min([present.now_s, *sealed_s])
    if last_label_s is None or seen_s - last_label_s > patience_s + horizon_s + length_s:
        return NO_LABELS, last_label_s
    return None


def _monitor(
    labelled: Sequence[CohortResult], alarm: AlarmSnapshot, settings: AlarmSettings
) -> Monitor | None:
    """Return what the rule could show now; None without labels."""
    if not labelled:
        return None
    tables, block = [each.table for each in labelled], alarm.reference.of(alarm.name).block
    effects, recent = effects_of(tables), tables[-N_RECENT:]
    variance = effects.variance.sum(axis=0)
    if block is not None:
        variance = variance + block.variance[0]
    return Monitor(
        UnitTable(*(merged(recent).columns / len(recent))),
        settings.level(n_requested(alarm.detectors, settings)),
        len(labelled),
        variance,
        phi_of(effects.errors.T, effects.variance.T),
        has_block=block is not None,
    )


def _scores(
    results: Sequence[CohortResult], settings: AlarmSettings, live: Shift | None, is_known: bool
) -> ScoresState:
    """Return the shift of the scores of sealed cohorts, or of the last days where these do not show one."""
    found = None
    if results:
        days = [datetime.fromtimestamp(each.cohort, UTC).weekday() for each in results]
        occupancy = np.stack([each.table.occupancy for each in results])
        found = shift_of(occupancy, days if settings.bucket_s == DAY_S else None)
    if live is not None and (found is None or (live.is_shifted and not found.is_shifted)):
        found = live
    start = None
    if found is not None and found is not live and found.start is not None:
        start = results[found.start].cohort
    return ScoresState.of(found, is_known, start)


def _share(result: CohortResult) -> float:
    total, labelled = result.coverage.sum(axis=1)
    return float(labelled / total) if total else 1.0
