"""Whether an alarm is about the model or about its raters, from the raters' own detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibrant.core.actions import Advice
from calibrant.drift.calibration import MIN_UNITS
from calibrant.drift.evaluation import leans_towards
from calibrant.drift.recommendation import of_raters
from calibrant_server.workers.alarm.cohorts import rater_in
from calibrant_server.workers.alarm.detectors import Detector

RATER_SHIFT, MODEL_DRIFT, UNDECIDED, NONE = "rater shift", "model drift", "undecided", "none"
_COMPARABLE = 0.25


@dataclass(frozen=True)
class Attribution:
    """What changed: `title` is "none", "rater shift", "model drift" or "undecided".

    Attributes
    ----------
    raters : in alarm
    leaning : without alarm, with labels that tend in the same direction
    others : without either
    """

    title: str
    raters: list[str]
    leaning: list[str]
    others: list[str]


def who_alarms(detectors: Mapping[str, Detector]) -> Attribution | None:
    """Attribute an alarm to model or rater from the raters' own detectors; None if there are none."""
    own = {rater: each for name, each in detectors.items() if (rater := rater_in(name)) is not None}
    if not own:
        return None
    alarmed = {rater: each for rater, each in own.items() if each.in_alarm}
    # A rater with few cases raises no alarm whatever they rate.
    least = max(
        MIN_UNITS, _COMPARABLE * min((each.total.n_units for each in alarmed.values()), default=0.0)
    )
    others = {
        rater: _leans(each, alarmed)
        for rater, each in own.items()
        if rater not in alarmed and each.total.n_units >= least
    }
    return rater_or_model(list(alarmed), others)


def _leans(detector: Detector, alarmed: Mapping[str, Detector]) -> bool:
    changes = [each.change for each in alarmed.values() if each.change is not None]
    return any(leans_towards(detector.leaning, one.direction, one.sign) for one in changes)


def rater_or_model(alarmed: Sequence[str], others: Mapping[str, bool]) -> Attribution:
    """Attribute an alarm to the model or to raters.

    When a model drifts, some rater's detector is the first to raise an alarm. The others must therefore not only raise no
    alarm: their labels must not tend in the same direction either.

    Parameters
    ----------
    alarmed : raters in alarm
    others : for each other rater with enough data, whether their labels tend in the direction of the alarms

    Examples
    --------
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
