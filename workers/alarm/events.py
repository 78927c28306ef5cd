"""Events: the alarms that were raised at the same cohort and have the same effect, as one notification.

Grouping is presentation. Detectors keep their state, threshold and id, and each alarm is acknowledged and closed alone. A
crossing at a later cohort is a new event. So is an alarm at the same cohort whose effect differs from the others'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import scipy

from calibrant_server.workers.alarm.episodes import Episode, shown

# Standard errors between two effects from which they are different.
DIFFERENT = 2.0
_ESTIMATES = ("intercept_beside_slope", "slope")


def events_of(raised: Iterable[Episode]) -> list[list[Episode]]:
    """Group the alarms of one cohort: that of all rows first, then the others by their evidence.

    An alarm joins the first event whose leading alarm does not differ from it.
    """
    events: list[list[Episode]] = []
    for each in sorted(
        raised, key=lambda one: (one.slice != "", -(one.evidence_log10 or 0.0), one.id)
    ):
        place = next((event for event in events if not differs(event[0], each)), None)
        if place is None:
            events.append([each])
        else:
            place.append(each)
    return events


def differs(one: Episode, other: Episode) -> bool:
    """Return whether the effects of two alarms differ in sign or by two standard errors.

    A sign counts if the estimate is two standard errors from no effect.
    """
    return any(
        _differ(_estimate(one.effect, name), _estimate(other.effect, name), float(name == "slope"))
        for name in _ESTIMATES
    )


def event_id(event: list[Episode]) -> str:
    """Return the id of an event: that of its leading alarm, under another name."""
    return f"ev_{blake2b(event[0].id.encode(), digest_size=10).hexdigest()}"


def notification(event: list[Episode]) -> dict[str, Any]:
    """Return the leading alarm as shown, with every alarm of the event in `scopes`."""
    return shown(event[0]) | {"scopes": [_scope(each) for each in event]}


def _scope(episode: Episode) -> dict[str, Any]:
    effect = {name: episode.effect.get(name) for name in ("n_units", *_ESTIMATES)}
    return {
        "id": episode.id,
        "scope": episode.scope,
        "slice": episode.slice or None,
        "evidence_log10": episode.evidence_log10,
        "threshold_log10": episode.threshold_log10,
        "effect": effect,
    }


def _estimate(effect: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Return an estimate with its standard error, None without."""
    found = effect.get(name)
    if not found:
        return None
    low, high = found["interval"]
    reach = float(scipy.special.ndtri(0.5 + float(effect.get("ci", 0.95)) / 2.0))
    return float(found["value"]), (high - low) / (2.0 * reach)


def _differ(
    one: tuple[float, float] | None, other: tuple[float, float] | None, neutral: float
) -> bool:
    if one is None or other is None:
        return False
    (a, error_a), (b, error_b) = one, other
    if abs(a - b) > DIFFERENT * (error_a**2 + error_b**2) ** 0.5:
        return True
    a, b = a - neutral, b - neutral
    return a * b < 0 and abs(a) > DIFFERENT * error_a and abs(b) > DIFFERENT * error_b
