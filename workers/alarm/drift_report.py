"""The drift report: the words of a detector as JSON values, and who changed (model or raters)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibrant.core.actions import Advice
from calibrant.core.documents import Result
from calibrant.drift.calibration import MIN_UNITS
from calibrant.drift.evaluation import LEANING
from calibrant.drift.recommendation import of_raters
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.words import CalibrationState, ChangeState, ScoresState
from calibrant_server.workers.alarm.cohorts import (
    rater_in,
)
from calibrant_server.workers.alarm.detectors import Detector
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
_COMPARABLE = 0.25


@dataclass(frozen=True)
class Attribution:
    """What changed: `title` is "none", "rater shift", "model drift" or "undecided"."""

    title: str
    raters: list[str]  # in alarm
    leaning: list[str]  # without alarm, with labels that tend in the same direction
    others: list[str]  # without either


def who_alarms(detectors: Mapping[str, Detector]) -> Attribution | None:
    """Attribute an alarm to model or rater from the raters' own detectors; None if there are none."""
    own = {rater: each for name, each in detectors.items() if (rater := rater_in(name)) is not None}
    if not own:
        return None
    alarmed = {rater: each.change for rater, each in own.items() if each.change is not None}
    # A rater with few cases raises no alarm whatever they rate.
    fewest = min((own[rater].total.n_units for rater in alarmed), default=0.0)
    enough = max(MIN_UNITS, _COMPARABLE * fewest)
    others = {
        rater: any(c.sign * each.leaning[c.direction] >= LEANING for c in alarmed.values())
        for rater, each in own.items()
        if rater not in alarmed and each.total.n_units >= enough
    }
    return rater_or_model(list(alarmed), others)


def rater_or_model(alarmed: Sequence[str], others: Mapping[str, bool]) -> Attribution:
    """Attribute an alarm to the model or to raters.

    When a model drifts, some rater's detector is the first to raise an alarm. The others must therefore not only raise no
    alarm: their labels must not tend in the same direction either.

    `others` is, for each other rater with enough data, whether their labels tend in the direction of the alarms.

    >>> rater_or_model(["ann"], {"bob": False}).title, rater_or_model(["ann"], {"bob": True}).title
    ('rater shift', 'model drift')
    """
    leaning = sorted(name for name, leans in others.items() if leans)
    quiet = sorted(name for name, leans in others.items() if not leans)
    title = _title(len(alarmed), len(leaning), len(quiet))
    return Attribution(title, sorted(alarmed), leaning, quiet)


def _title(n_alarmed: int, n_leaning: int, n_quiet: int) -> str:
    if not n_alarmed:
        return NONE
    if n_alarmed + n_leaning + n_quiet < 2:
        return UNDECIDED
    if n_alarmed + n_leaning > n_quiet:
        return MODEL_DRIFT
    return UNDECIDED if n_leaning else RATER_SHIFT


def title_of(name: str, who: Attribution | None) -> str:
    """Return the title of an alarm: its subject, and the raters if only their labels changed."""
    if who is not None and who.title == RATER_SHIFT:
        return f"{RATER_SHIFT}: {', '.join(who.raters)}"
    if who is not None and who.title == MODEL_DRIFT:
        return MODEL_DRIFT
    rater = rater_in(name)
    return "calibration drift" if rater is None else f"calibration drift in the labels of {rater}"


def advised(advice: Advice, who: Attribution | None) -> Advice:
    """Recommend an action on an alarm; ask the raters first if only their labels changed."""
    if who is None or who.title != RATER_SHIFT:
        return advice
    return of_raters(advice, who.raters)
