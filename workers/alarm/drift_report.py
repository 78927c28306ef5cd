"""The drift report: the words of a detector as JSON values, and who changed (model or raters)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from calibrant.core.action_texts import of_some_slices
from calibrant.core.actions import Advice, map_method, read_drift, recommendation
from calibrant.core.documents import Result
from calibrant.drift.calibration import GOOD, OFF
from calibrant.drift.evaluation import change_since
from calibrant.drift.recommendation import AS_SENT, OVER, Recalibration, recalibration
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.words import CalibrationState, ChangeState, ScoresState
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import is_of_all, parts_of, rater_in
from calibrant_server.workers.alarm.detectors import Detector, OpenChange, requested
from calibrant_server.workers.alarm.episodes import at
from calibrant_server.workers.alarm.words_of import AlarmSnapshot, ModelWords


def words_document(words: ModelWords) -> Result:
    """Return the words, each with its sentence, its deciding number and n."""
    return {
        "status": words.status,
        "calibration": _calibration(words.calibration),
        "change": _change(words.change),
        "scores": _scores(words.scores),
    }


def _calibration(state: CalibrationState) -> Result:
    found, bounds = state.judgement, state.selection.bounds
    return {
        "word": "off" if state.is_off else state.word,
        "sentence": state.sentence,
        "value": found.limit,
        "allowed": state.tolerance,
        "error": found.error,
        "expected_at_most": found.null,
        "n": found.n_units,
        "n_more": found.n_more,
        "coverage": state.selection.coverage,
        "coverage_fell": state.coverage_fell,
        "bounds": None if bounds is None else list(bounds),
        "since": None if state.since is None else at(state.since),
    }


def _change(state: ChangeState) -> Result:
    names = ("start", "earliest", "latest", "armed_at", "acknowledged_at")
    times = {name: getattr(state, name) for name in names}
    return {
        "word": state.word,
        "sentence": state.sentence,
        "n": state.n_units,
        "smallest_change": state.smallest_points,
        **{name: None if value is None else at(value) for name, value in times.items()},
    }


def _scores(state: ScoresState) -> Result:
    expected = state.expected
    return {
        "word": state.word,
        "sentence": state.sentence,
        "value": state.psi,
        "limit": state.limit,
        "expected_accuracy": None if expected is None else expected.value,
        "expected_interval": None if expected is None else list(expected.interval),
        "n_unlabelled": None if expected is None else expected.n_unlabelled,
    }


def effect_of(change: ChangeState, task: str) -> Result | None:
    """Return the size of an open change, in the rate of correct or positive labels; None without one."""
    if change.sides is None:
        return None
    before, after = (_side(each, task) for each in change.sides)
    return {"before": before, "after": after}


def _side(table: UnitTable, task: str) -> Result:
    n, rate = table.n_units, "positive_rate" if task == "binary" else "accuracy"
    return {
        "n": n,
        rate: float(table.correct.sum()) / n if n else None,
        "mean_confidence": float(table.confidence.sum()) / n if n else None,
    }


def title(alarm: AlarmSnapshot, who: Attribution | None) -> str | None:
    """Return the current subject of the alarm or, once it is acknowledged, its former subject."""
    if alarm.watched.in_alarm:
        return title_of(alarm.name, who)
    return None if alarm.episode is None else alarm.episode.title


RATER_SHIFT, MODEL_DRIFT, UNDECIDED, NONE = "rater shift", "model drift", "undecided", "none"
Z95 = 1.96  # standard errors of a 95 % interval
EXCLUDED = 0.3  # labels with less than this part of a change exclude it
Interval = tuple[float, float]


@dataclass(frozen=True)
class Attribution:
    """What changed: `title` is "none", "rater shift", "model drift" or "undecided"."""

    title: str
    raters: list[str]  # in alarm
    leaning: list[str]  # without alarm, with labels that changed in the same direction
    others: list[str]  # with labels that exclude the change
    undecided: list[str]  # with labels that do neither


def who_alarms(state: AlarmState, names: Iterable[str]) -> Attribution | None:
    """Attribute an alarm to model or rater from the raters' own detectors among some; None if there are none."""
    found = ((rater_in(name), AlarmSnapshot(state, name)) for name in names)
    own = {rater: each for rater, each in found if rater is not None and each.detector is not None}
    if not own:
        return None
    alarmed = {rater: each.watched.change for rater, each in own.items() if each.watched.in_alarm}
    sizes = [(each, _since(own[who], each)[0]) for who, each in alarmed.items() if each]
    shares = {
        rater: [_share(each, change, size) for change, size in sizes]
        for rater, each in own.items()
        if rater not in alarmed
    }
    return rater_or_model(list(alarmed), shares)


def _share(other: AlarmSnapshot, change: OpenChange, size: float) -> Interval:
    """Return the 95 % interval of the part of a rater's change, of a size, that another's labels have."""
    found, error = _since(other, change)
    if size * change.sign <= 0.0:
        return -inf, inf
    return (found / size - Z95 * error / abs(size), found / size + Z95 * error / abs(size))


def _since(rater: AlarmSnapshot, change: OpenChange) -> tuple[float, float]:
    """Return what changed in the labels of a rater since the start of a change, and the standard error."""
    labelled, before = rater.labelled, rater.before
    n_after = sum(each.cohort >= change.start for each in labelled)
    tables = [*before.days, *(each.table for each in labelled)]
    return change_since(tables, n_after, change.direction, before.block)


def rater_or_model(alarmed: Sequence[str], shares: Mapping[str, Sequence[Interval]]) -> Attribution:
    """Attribute an alarm to the model or to raters.

    When a model drifts, some rater's detector is the first to raise an alarm. Others' labels must therefore exclude the change.

    `shares` has, for each rater without alarm, the interval of the part of each alarm's change in their labels.

    >>> rater_or_model(["ann"], {"bob": [(-0.2, 0.2)]}).title, rater_or_model(["ann"], {"bob": [(-0.2, 0.9)]}).title
    ('rater shift', 'undecided')
    """
    leaning = {name for name, each in shares.items() if any(low > 0.0 for low, _ in each)}
    quiet = {name for name, each in shares.items() if all(high < EXCLUDED for _, high in each)}
    quiet -= leaning
    title = _title(len(alarmed), len(leaning), len(quiet))
    rest = sorted(set(shares) - leaning - quiet)
    return Attribution(title, sorted(alarmed), sorted(leaning), sorted(quiet), rest)


def _title(n_alarmed: int, n_leaning: int, n_quiet: int) -> str:
    if not n_alarmed:
        return NONE
    if n_alarmed + n_leaning + n_quiet < 2:
        return UNDECIDED
    if n_alarmed + n_leaning > n_quiet:
        return MODEL_DRIFT
    return UNDECIDED if n_leaning else RATER_SHIFT


def title_of(name: str, who: Attribution | None) -> str:
    """Return the title of an alarm: its subject, with the raters if only their labels changed, and whose labels it measures."""
    subject = "calibration drift"
    if who is not None and who.title == RATER_SHIFT:
        subject = f"{RATER_SHIFT}: {', '.join(who.raters)}"
    elif who is not None and who.title == MODEL_DRIFT:
        subject = MODEL_DRIFT
    rater = rater_in(name)
    return subject if rater is None else f"{subject} (labels of {rater})"


def of_slices(advice: Advice, state: AlarmState, name: str) -> Advice:
    """Recommend to check the slices that are affected, not a map for all, if the labels of others of the same key speak against it."""
    recent = AlarmSnapshot(state, name).recent if is_of_all(name) else []
    fit = recalibration(merged(each.table for each in recent))
    if fit is None or map_method(str(advice["action"]), True) is None:
        return advice
    parted = [_parted(each, fit, recent[0].cohort) for each in _slices_by_key(state, name)]
    of_key = min((each for each in parted if all(each)), key=lambda each: len(each[0]), default=None)  # fmt: skip
    if of_key is None:
        return advice
    bad, rest = ([*each] for each in of_key)
    good = [each for each in rest if of_key[1][each].words.calibration == GOOD]
    reason = of_some_slices(bad, rest, good, state.detectors[name].in_alarm)
    evidence = {**advice["evidence"], "slices": {"affected": bad, "good": good}}
    return {**recommendation(None, reason, evidence), "next": read_drift(state.config.model, bad[0])}  # fmt: skip


def _slices_by_key(state: AlarmState, name: str) -> Iterable[list[AlarmSnapshot]]:
    """Return the slices of each key that have the scope of a detector."""
    keys: dict[str, list[AlarmSnapshot]] = {}
    for each in requested(state.detectors, state.settings):
        if (slice_ := parts_of(each)[1]) and parts_of(each)[0] == parts_of(name)[0]:
            keys.setdefault(slice_.partition(":")[0], []).append(AlarmSnapshot(state, each))
    return keys.values()


def _parted(
    slices: Iterable[AlarmSnapshot], fit: Recalibration, start: int
) -> tuple[dict[str, Detector], dict[str, Detector]]:
    """Return the slices that changed or are off, and those whose labels since a cohort are far more likely without a map for all."""
    bad, rest = dict[str, Detector](), dict[str, Detector]()
    for each in slices:
        slice_, table = parts_of(each.name)[1], merged(c.table for c in each.labelled if c.cohort >= start)  # fmt: skip
        if each.watched.in_alarm or each.watched.words.calibration == OFF:
            bad[slice_] = each.watched
        elif AS_SENT.log_likelihood(table) - fit.log_likelihood(table) >= OVER:
            rest[slice_] = each.watched
    return bad, rest


def advised(advice: Advice, who: Attribution | None) -> Advice:
    """Recommend an action on an alarm, but no update of the model if only raters' labels changed."""
    if who is None or not who.raters:
        return advice
    seen, few, after = ", ".join(who.raters), ", ".join(who.undecided), advice["reason"]
    if who.title == RATER_SHIFT:
        then = f" If they are right: {after}" if map_method(str(advice["action"]), True) else ""
        first = f"Ask {seen} first: other raters' labels did not change so. Do not change the model until the labels of {seen} are checked."
        return recommendation(None, f"{first}{then}", advice["evidence"])
    if who.title == MODEL_DRIFT or not few:
        return advice
    unclear = f"The change is seen in the labels of {seen}; those of {few} are too few to say whether they changed, too."
    return {**advice, "reason": f"{unclear} {after}"}
