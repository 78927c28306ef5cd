"""The two words of a model with the shift of its scores; on request the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from calibrant.core.actions import Advice, map_method
from calibrant.core.documents import Extra, Result
from calibrant.core.time_texts import day_of
from calibrant.drift.calibration import GOOD, OFF, UNKNOWN, Selection, judge, selection_of
from calibrant.drift.recommendation import temperature_of
from calibrant.drift.unit_tables import UnitTable, merged, unit_table
from calibrant.drift.unlabelled_scores import Shift, window_shift
from calibrant.drift.words import (
    CHANGED,
    NOT_ARMED,
    CalibrationState,
    ChangeState,
    ScoresState,
)
from calibrant.results.drift import CURRENT_S, EVIDENCE, RECENT, drift
from calibrant.results.expected_accuracy import expected_of_panes
from calibrant_server.workers.alarm.cohorts import parts_of, rater_in
from calibrant_server.workers.alarm.detectors import MAX_DETECTORS, Detector, n_requested
from calibrant_server.workers.alarm.drift_report import (
    Attribution,
    advised,
    effect_of,
    of_slices,
    title,
    who_alarms,
    words_document,
)
from calibrant_server.workers.alarm.episodes import interval
from calibrant_server.workers.alarm.words_of import AlarmSnapshot, ModelWords, words_of
from calibrant_server.workers.queries import change_advice
from calibrant_server.workers.queries.drift_evidence import (
    closed_by_map,
    evidence_of_words,
    recent_rows,
    skipped_cohorts,
)
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.mapped_window import mapped_calibration
from calibrant_server.workers.queries.query import Declared, declared_query
from calibrant_server.workers.queries.waiting_advice import advice_without_update
from calibrant_server.workers.store.model_events import SETTING
from calibrant_server.workers.store.windows import DatedPane

DriftQuery = declared_query(drift)
COMPARED = ("tried", "candidates", "information", "remaining", "sample", "whole_window")


def accumulators(query: Declared) -> Iterable[str]:
    """Counts and unit-weighted sums."""
    return ("counts", "units")


def compute(query: Declared, inputs: Inputs) -> Result:
    """The words of the slice's detector with their recommendation, and the parts that the query includes."""
    config, alarm = inputs.config, inputs.alarm
    why_not = _why_not(inputs)
    watched = None if why_not is not None else alarm.detector
    words = _with_expected(_words(inputs, watched, why_not), inputs)
    who = None if watched is None else who_alarms(alarm.state, alarm.requested)
    advice = _advice(inputs, words, watched, who)
    found = words_document(words) | {
        "effect": _effect(words, config.task, advice),
        "title": None if watched is None else title(alarm, who),
        "alarm": None if watched is None else watched.episode,
        "map_version": alarm.state.active_map.version,
        "recommendation": advice,
    }
    included = query.plain().included
    if RECENT in included:
        found["recent"] = recent_rows(alarm.results)
    if EVIDENCE not in included:
        found["recommendation"]["evidence"] = _short(found["recommendation"]["evidence"])
        return found
    if watched is not None:
        found |= evidence_of_words(alarm)
    return found | {
        "rater_or_model": None if who is None else asdict(who),
        "detector": _detector(alarm),
        "detector_reason": why_not,
        "settings": [each for each in config.events if each["kind"] == SETTING],
    }


def _effect(words: ModelWords, task: str, advice: Advice) -> Result | None:
    """Return the size of an open change, with the temperature that the recommendation fitted to the rows since."""
    found, sides = effect_of(words.change, task), words.change.sides
    if found is None or sides is None:
        return None
    # The table of a top label gives another temperature than its rows do.
    for name, side in zip(("before", "after"), sides, strict=True):
        found[name]["temperature"] = temperature_of(side) if task == "binary" else None
    tried = {each["action"]: each["parameters"] for each in advice["evidence"].get("tried", ())}
    fitted = tried.get("temperature")
    return found if fitted is None else found | {"after": found["after"] | fitted}


def _words(inputs: Inputs, watched: Detector | None, why_not: str | None) -> ModelWords:
    """Return the words of the detector, or of the panes of the window without one."""
    current, earlier = _tables(inputs)
    live = window_shift(current.occupancy, earlier.occupancy)
    ends = [each.start_s + each.length_s for each in inputs.panes]
    if watched is not None:
        last_s = max(ends, default=watched.last)
        return words_of(inputs.alarm, inputs.window.to_s, last_s, live, _late(inputs))
    return _without_cohorts(inputs, [current, earlier], why_not or "", live)


def _late(inputs: Inputs) -> float:
    """Return the share of predictions that got their label after their cohort was sealed, by the panes of which all cohorts are known."""
    length_s, results = inputs.alarm.state.settings.bucket_s, inputs.alarm.results
    known = range(results[0].cohort, results[-1].cohort + length_s) if results else range(0)
    panes = [each for each in inputs.panes if each.start_s in known and each.start_s + each.length_s - 1 in known]  # fmt: skip
    n = sum(each.pane.counts["n_predictions"] for each in panes)
    labelled = sum(each.pane.counts["n_labelled"] for each in panes)
    spans = [range(each.start_s, each.start_s + each.length_s) for each in panes]
    then = merged(each.table for each in results if any(each.cohort in span for span in spans))
    return max(0.0, labelled / n - then.labelled_share) if n else 0.0


def _with_expected(words: ModelWords, inputs: Inputs) -> ModelWords:
    """Add the accuracy to expect of the last days' unlabelled units; labels from before a change would give a wrong one."""
    cut = start_of_current(inputs.panes)
    current = [each.pane for each in inputs.panes if each.start_s >= cut]
    if words.change.word == CHANGED or not current:
        return words
    expected = expected_of_panes(current, current)
    if expected is None and words.change.acknowledged_at is None:
        expected = expected_of_panes((each.pane for each in inputs.panes), current)
    return replace(words, scores=replace(words.scores, expected=expected))


def _without_cohorts(
    inputs: Inputs, sides: Sequence[UnitTable], why_not: str, live: Shift | None
) -> ModelWords:
    """Return the words of panes: of the last days, or of all if these have few labels."""
    settings, version = inputs.alarm.state.settings, inputs.alarm.state.active_map.version
    change = ChangeState(NOT_ARMED, why_not=why_not)
    if settings.is_mapped and version is not None:
        # The data that a map was fitted to are no evidence about it.
        state = mapped_calibration(inputs.alarm, inputs.config.label_horizon_s is not None)
        return ModelWords(state, change, ScoresState.of(live, state.word != UNKNOWN))
    panes = inputs.panes
    found, first_s = judge(sides[0], tolerance=settings.tolerance), start_of_current(panes)
    if found.limit is None:
        found, first_s = judge(merged(sides), tolerance=settings.tolerance), 0
    selection = Selection(None)
    if inputs.config.label_horizon_s is None and panes:
        selection = selection_of(merged(sides))
    spans = [
        (each.start_s, each.start_s + each.length_s) for each in panes if each.start_s >= first_s
    ]
    period = (min(spans)[0], max(spans)[1]) if spans else None
    state = CalibrationState(found.word, found, settings.tolerance, selection, period=period)
    return ModelWords(state, change, ScoresState.of(live, found.word != "unknown"))


def _advice(
    inputs: Inputs,
    words: ModelWords,
    watched: Detector | None,
    who: Attribution | None,
) -> Advice:
    """Return what to do: correct what changed or is off, else wait, or nothing."""
    found = None if watched is None else change_advice.change_advice(inputs)
    if found is not None:
        found = of_slices(found, inputs.alarm.state, inputs.alarm.name)
    calibration = words.calibration
    is_open = calibration.word != GOOD and calibration.why_not is None
    if inputs.alarm.unwatched is not None and is_open:
        fitted = change_advice.of_temperature(inputs, inputs.alarm.unwatched())
        is_correction = map_method(str(fitted["action"]), is_binary=True) is not None
        found = fitted if is_correction or calibration.word == OFF else None
    if found is None:
        is_empty = not inputs.panes and watched is None
        found = advice_without_update(words, inputs.config, not is_empty)
    return advised(found, who) if watched is not None and watched.in_alarm else found


def _short(evidence: Extra) -> Extra:
    """Return the evidence of a recommendation without the comparison of its candidates."""
    return {name: each for name, each in evidence.items() if name not in COMPARED}


def _detector(alarm: AlarmSnapshot) -> Result | None:
    state, settings, detector = alarm.state, alarm.state.settings, alarm.detector
    if detector is None:
        return None
    scope, slice_ = parts_of(alarm.name)
    last = None if detector.last is None else interval(detector.last, settings.bucket_s)
    return {
        "scope": scope,
        "slice": slice_ or None,
        "raters": settings.raters,
        "scores": settings.scores,
        "bucket": settings.bucket,
        "label_horizon_s": state.config.label_horizon_s,
        "n_detectors": n_requested(state.detectors, settings),
        "n_cohorts": len(alarm.counted),
        "last_cohort": last,
    }


def _tables(inputs: Inputs) -> tuple[UnitTable, UnitTable]:
    """Return the units of the last days and of the days before."""
    cut, policy = start_of_current(inputs.panes), inputs.alarm.state.settings.policy
    tables: dict[bool, list[UnitTable]] = {True: [], False: []}
    for each in inputs.panes:
        tables[each.start_s >= cut].append(unit_table(each.pane, policy))
    return merged(tables[True]), merged(tables[False])


def _why_not(inputs: Inputs) -> str | None:
    """Return why there is no verdict of a detector, None if there is one."""
    alarm, detector = inputs.alarm, inputs.alarm.detector
    if alarm.state.config.label_horizon_s is None:
        return "the model has no label_horizon. Declare the time after which labels are complete"
    if detector is None:
        return f"{_not_evaluated(inputs)}{closed_by_map(alarm)}"
    if detector.made_of != alarm.state.settings.made_of:
        return "the settings of the alarm changed: it starts again with the labels that are complete next"
    if detector.begun is None:
        passed = skipped_cohorts(detector)
        skipped = f". {passed['n']} cohorts were skipped: {passed['detail']}" if passed["n"] else ""
        return f"no labels count yet{skipped}{closed_by_map(alarm)}"
    return None


def _not_evaluated(inputs: Inputs) -> str:
    """Return why no cohort was evaluated: none is past the label horizon, or the posted history is being evaluated."""
    alarm, state = inputs.alarm, inputs.alarm.state
    if parts_of(alarm.name)[1] and len(state.detectors) >= MAX_DETECTORS:
        return (
            f"this slice is not watched, because the model has {MAX_DETECTORS} watched ones already"
        )
    if not inputs.panes:
        return "there are no predictions yet"
    rater = rater_in(alarm.name)
    if rater is not None and state.detectors:
        n = state.settings.rater_detectors
        return f"rater {rater} has no detector. The first {n} raters by name have one, if two or more rated in sealed cohorts"
    length_s = state.settings.bucket_s
    first_s = min(each.start_s for each in inputs.panes) // length_s * length_s
    complete_s = first_s + length_s + (state.config.label_horizon_s or 0)
    if complete_s <= inputs.window.to_s:
        return "the posted history is being evaluated"
    return f"the first labels are complete on {day_of(complete_s)}"


def start_of_current(panes: list[DatedPane]) -> int:
    """Return the start of the last days of a window that have predictions, in seconds."""
    return max((each.start_s + each.length_s for each in panes), default=0) - CURRENT_S


KIND = ResultKind(DriftQuery, compute, accumulators)
