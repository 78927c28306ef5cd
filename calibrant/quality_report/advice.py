"""What to do, in one sentence or two: after the verdict of a report, or as the service recommends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.core.action_texts import temperature_text
from calibrant.inference.replication import MIN_UNITS
from calibrant.quality_report.chance import reach_of_chance
from calibrant.quality_report.contents import ReportContents
from calibrant.quality_report.exceptions import VerdictException

AGAIN = "Evaluate again when the model, its inputs or its readers change."


def advice_of_words(
    recommendation: Mapping[str, Any], exceptions: Sequence[VerdictException] = ()
) -> str:
    """Return the advice of the service, which is about all predictions together, with the exceptions to it.

    >>> at = VerdictException("predictions flagged at threshold 0.3", "Threshold 0.3: …")
    >>> advice_of_words({"reason": "No action is needed."}, [at])
    'What to do: No action is needed. That is on average: before you act on predictions flagged at threshold 0.3, correct these probabilities.'
    """
    return " ".join(filter(None, [f"What to do: {recommendation['reason']}", apart(exceptions)]))


def apart(exceptions: Sequence[VerdictException]) -> str:
    """Return what to do about exceptions; empty without one."""
    if not exceptions:
        return ""
    named = ", or on ".join(each.what for each in exceptions)
    return f"That is on average: before you act on {named}, correct these probabilities."


def advice_of(
    state: str,
    each: Mapping[str, Any],
    contents: ReportContents,
    exceptions: Sequence[VerdictException],
) -> str:
    """Return what to do after the verdict on one result."""
    if state == "on_average":
        return f"What to do: you need not act at this tolerance. {apart(exceptions)}"
    if state == "within_tolerance":
        return _within(each, contents)
    if state == "outside" and contents.active_map is not None:
        return "What to do: do not use the probabilities without the map. Evaluate the map with later data."
    if state == "outside":
        return "What to do: do not use the probabilities as they are. Correct them, then evaluate again with other data."
    return _undecided(each, contents)


def _within(each: Mapping[str, Any], contents: ReportContents) -> str:
    if each.get("above_null") and reach_of_chance(each) is None:
        measured = temperature_text(contents.temperature)
        return " ".join(filter(None, ["What to do: you need not act at this tolerance. The error is more than chance.", measured, AGAIN]))  # fmt: skip
    return f"What to do: nothing now. {AGAIN}"


def _undecided(each: Mapping[str, Any], contents: ReportContents) -> str:
    more = f"more {contents.unit}s"
    if each.get("interval") is None and each.get("interval_reason") == "too_few_units":
        more = f"at least {MIN_UNITS} {contents.unit}s"
    return f"What to do: evaluate {more}, with the same tolerance. Until then, report the model neither as within tolerance nor as outside it."
