"""Whether an alarm is about the model or about its raters, from the raters' own detectors."""

from __future__ import annotations

from collections.abc import Mapping

from calibrant.core.actions import Advice
from calibrant.drift.calibration import MIN_UNITS
from calibrant.drift.evaluation import leans_towards
from calibrant.drift.rater_shift import MODEL_DRIFT, RATER_SHIFT, Attribution, rater_or_model
from calibrant.drift.recommendation import of_raters
from calibrant_server.workers.alarm.cohorts import rater_in
from calibrant_server.workers.alarm.detectors import Detector

_COMPARABLE = 0.25


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
