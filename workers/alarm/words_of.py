"""A detector with the stored state of the alarm, and its words at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from calibrant.core.pane import Pane
from calibrant.core.time_texts import event_text, length_text
from calibrant.drift.calibration import N_RECENT, OFF, UNKNOWN, Judgement, Word, selection_of
from calibrant.drift.change import DIRECTIONS
from calibrant.drift.evaluation import LATER, Monitor, columns_of, judge_cohorts
from calibrant.drift.unit_tables import merged
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
    status_of,
)
from calibrant.raters.label_coverage import fall_of_coverage
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import (
    CohortResult,
    detector_name,
    is_of_all,
    parts_of,
    rater_in,
)
from calibrant_server.workers.alarm.detectors import (
    Before,
    Detector,
    OpenChange,
    n_judged,
    n_requested,
    requested,
)
from calibrant_server.workers.alarm.episodes import Episode
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_events import events_between, seconds_of
from calibrant_server.workers.store.slice_names import plain_slice
from calibrant_server.workers.store.windows import Window

DAY_S = 86_400
# Predictions, and labels after their horizon, are missing after so many label horizons.
MISSING_AFTER = 2
MAX_NAMED_EVENTS = 3
BEHIND = 2  # cohorts past the label horizon that are not evaluated: a history is being evaluated


@dataclass(frozen=True)
class AlarmSnapshot:
    """One detector of a model, with the stored state of the alarm."""

    state: AlarmState  # of the alarm
    name: str  # of the detector
    # the requested window
    window: Window = Window(0, 0)  # noqa: RUF009
    # the merged sealed panes of the cohorts that an update corrects, and of those after the alarm
    changed: tuple[Pane, Pane] | None = None
    # reads the merged panes of the window, if there is no detector; most models need no advice
    unwatched: Callable[[], Pane] | None = None

    @property
    def detector(self) -> Detector | None:
        return self.state.detectors.get(self.name)

    @property
    def watched(self) -> Detector:
        """The detector, where there is one."""
        return self.state.detectors[self.name]

    @property
    def requested(self) -> dict[str, Detector]:
        """The detectors of the model that the settings name, by name."""
        found = self.state.detectors
        return {name: found[name] for name in sorted(requested(found, self.state.settings))}

    @property
    def results(self) -> list[CohortResult]:
        """All stored cohort results, oldest first."""
        return self.state.cohort_results(self.name)

    @property
    def counted(self) -> list[CohortResult]:
        """The results of the cohorts since the start of Before."""
        return self.watched.counted(self.results)

    @property
    def labelled(self) -> list[CohortResult]:
        """The results that the rule of change compares."""
        return self.watched.compared(self.results, self.before)

    @property
    def recent(self) -> list[CohortResult]:
        """The last cohorts with labels, of an open change those since its start."""
        return self.watched.recent(self.counted)

    @property
    def selected(self) -> list[CohortResult]:
        """The last cohorts, labelled or not."""
        return self.counted[-N_RECENT:]

    @property
    def before(self) -> Before:
        """What is before the first live cohort."""
        return self.state.reference.of(self.name, self.watched)

    @property
    def episode(self) -> Episode | None:
        """The open alarm."""
        each = self.detector
        return self.state.episode(each.episode) if each and each.episode else None

    @cached_property
    def judged(self) -> tuple[Word, Judgement]:
        """The word of calibration as shown, and the judgement of the recent cohorts, which is shown if the tolerance is another."""
        words, settings = self.watched.words, self.state.settings
        n = n_judged(self.state.detectors, settings)
        now = judge_cohorts([each.table for each in self.recent], settings.tolerance, n)
        return words.calibration if words.tolerance == settings.tolerance else now.word, now

    def corrected(self) -> tuple[Window, Window] | None:
        """The cohorts that an update corrects, and those of them after the alarm: since an open change, or the recent ones if off."""
        each, length_s = self.detector, self.state.settings.bucket_s
        if each is None or each.last is None or not self.recent:
            return None
        if each.change is None and self.judged[0] != OFF:
            return None
        end_s = each.last + length_s
        later = end_s if each.change is None else min(each.change.alarmed_at + length_s, end_s)
        return Window(self.recent[0].cohort, end_s), Window(later, end_s)


def read_snapshot(
    node: Any,
    keys: PartitionKeys,
    config: ModelConfig,
    slice_: str,
    window: Window,
    scope: str | None = None,
) -> AlarmSnapshot:
    """Read the alarm of a model; `scope` names a class if classes are watched."""
    state = AlarmState(node, keys, config)
    name = detector_name(scope or state.settings.scopes[0], plain_slice(slice_))
    state.read_together(name)
    return AlarmSnapshot(state, name, window)


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
    alarm: AlarmSnapshot,
    now_s: float,
    last_s: int | None = None,
    live: Shift | None = None,
    late: float = 0.0,
) -> ModelWords:
    """Return the words of a detector at a time.

    Parameters
    ----------
    now_s : seconds since the epoch
    last_s : end of the last predictions, None without any
    live : shift of the scores of the last days, sealed or not
    late : share of predictions with labels after the horizon
    """
    calibration, change = _calibration(alarm, late), change_of(alarm, now_s, last_s)
    is_known = change.word == CHANGED or (calibration.word != UNKNOWN and change.word == NONE_SEEN)
    has_all = calibration.selection.coverage is not None and not calibration.selection.is_partial
    is_known |= has_all and change.word in (NONE_SEEN, NOT_ARMED)
    return ModelWords(calibration, change, _scores(alarm, live, is_known))


def _calibration(alarm: AlarmSnapshot, late: float) -> CalibrationState:
    settings, words, sealed = alarm.state.settings, alarm.watched.words, alarm.counted
    recent, (word, now) = alarm.recent, alarm.judged
    length_s, selected = settings.bucket_s, alarm.selected
    shares = [(each.cohort, each.table.labelled_share) for each in sealed if each.table.predictions.any()]  # fmt: skip
    return CalibrationState(
        word,
        now,
        settings.tolerance,
        selection_of(merged(each.table for each in selected)),
        _slices_off(alarm) if is_of_all(alarm.name) else {},
        n_judged(alarm.state.detectors, settings) - 1,
        is_since_start=word == OFF and not words.was_good,
        since=words.since,
        fall=fall_of_coverage(shares),
        period=_period(recent, length_s),
        is_since_change=alarm.watched.in_alarm,
        selected=_period(selected, length_s),
        late=late,
        counting=(N_RECENT * now.n_units / max(len(recent), 1), length_text(N_RECENT * length_s)),
    )


def _period(cohorts: Sequence[CohortResult], length_s: int) -> tuple[int, int] | None:
    return (cohorts[0].cohort, cohorts[-1].cohort + length_s) if cohorts else None


def _slices_off(alarm: AlarmSnapshot) -> dict[str, float]:
    """Return the lower limit of the error of each slice and further class that is off, 0 if the last cohort has none."""
    found = {}
    for name, each in alarm.requested.items():
        if name != alarm.name and rater_in(name) is None and each.words.calibration == OFF:
            scope, slice_ = parts_of(name)
            found[slice_ or scope] = (each.words.last == OFF and each.words.limit) or 0.0
    return found


def change_of(alarm: AlarmSnapshot, now_s: float, last_s: int | None) -> ChangeState:
    """Return the word of change of a detector; see `words_of`."""
    detector, bucket_s = alarm.watched, alarm.state.settings.bucket_s
    if detector.change is not None:
        return _changed(alarm, detector.change)
    labelled, missing = alarm.labelled, _missing(alarm, now_s, last_s)
    n = sum(each.table.n_units for each in labelled)
    if missing is not None:
        word, end_s = missing
        return ChangeState(word, n, last_at=end_s, acknowledged_at=detector.acknowledged_at)
    monitor = _monitor(alarm)
    wait = None if monitor is None else monitor.armed_in
    smallest = None if monitor is None else monitor.smallest()
    later = monitor.later(smallest.points) if monitor and smallest and wait is None else None
    return ChangeState(
        NONE_SEEN if wait == 0 else NOT_ARMED,
        n,
        is_binary=alarm.state.config.task == "binary",
        smallest=smallest,
        armed_at=_words_at(alarm, now_s, wait) if wait else None,
        later=None if later is None else (_words_at(alarm, now_s, LATER), later),
        acknowledged_at=detector.acknowledged_at,
        cohort_s=bucket_s,
        since=labelled[0].cohort if labelled else None,
        evaluated_to=_evaluated_to(alarm, now_s, last_s),
    )


def _words_at(alarm: AlarmSnapshot, now_s: float, wait: int) -> int:
    """Return when so many more cohorts are sealed, at the present number per time; never in the past."""
    length_s, horizon_s = alarm.state.settings.bucket_s, alarm.state.config.label_horizon_s or 0
    cohorts = [each.cohort for each in alarm.labelled]
    pace = max(1.0, (cohorts[-1] - cohorts[0]) / (length_s * max(len(cohorts) - 1, 1)))
    first = max((alarm.watched.last or 0) + length_s, int(now_s - horizon_s) // length_s * length_s)
    return first + ceil(wait * pace) * length_s + horizon_s


def _evaluated_to(alarm: AlarmSnapshot, now_s: float, last_s: int | None) -> int | None:
    """Return the end of the last evaluated cohort, if several later ones are past the label horizon; else None."""
    config, length_s, last = alarm.state.config, alarm.state.settings.bucket_s, alarm.watched.last
    due_s = min(now_s - (config.label_horizon_s or 0), last_s or 0)
    is_behind = last is not None and due_s >= last + (1 + BEHIND) * length_s
    return last + length_s if last is not None and is_behind else None


def _changed(alarm: AlarmSnapshot, change: OpenChange) -> ChangeState:
    config, bucket_s = alarm.state.config, alarm.state.settings.bucket_s
    before, labelled = list(alarm.before.tables), alarm.labelled
    before += [each.table for each in labelled if each.cohort < change.start]
    since = merged(each.table for each in labelled if each.cohort >= change.start)
    return ChangeState(
        CHANGED,
        since.n_units,
        change.start,
        change.earliest,
        change.latest,
        (merged(before), since),
        is_binary=config.task == "binary",
        direction=DIRECTIONS[change.direction],
        of_reference=change.of_reference,
        cohort_s=bucket_s,
        events=_events_about(change, config, bucket_s),
    )


def _events_about(
    change: OpenChange, config: ModelConfig, length_s: int
) -> tuple[tuple[str, float], ...]:
    """Return the events from one cohort before the range of DATE to one after it, at most three."""
    first, last = change.earliest - length_s, change.latest + 2 * length_s
    found = events_between(config, first, last)[:MAX_NAMED_EVENTS]
    return tuple((event_text(each["kind"], each["name"]), seconds_of(each)) for each in found)


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
    tables, settings = [each.table for each in alarm.labelled], alarm.state.settings
    if not tables:
        return None
    level = settings.level(n_requested(alarm.state.detectors, settings))
    return Monitor(columns_of([*alarm.before.days, *tables]), level, alarm.before.block)


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
