"""The smallest errors that data of a size would have shown, at scores that the model gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.figures.numbers import percent
from calibrant.figures.reasons import reason_words
from calibrant.quality_report.contents import ReportContents

# A slope does not change scores of one half: it is stated at least this far from it, in log-odds.
NEAREST_LOG_ODDS = 1.0
FAR = 0.9


def places_of(contents: ReportContents) -> list[float]:
    """Return at which scores errors are stated: the decision thresholds, else the share of the labels, else one half."""
    thresholds = sorted({each["threshold"] for each in contents.thresholds})
    share = (contents.reliability or {}).get("accuracy")
    if thresholds:
        return thresholds
    return [0.5] if share is None or not 0.0 < share < 1.0 else [share]


def unknown_detectable(found: Mapping[str, Any]) -> str | None:
    """Return why it is not known which errors the data would have shown; None if it is known."""
    return reason_words(found["reason"]) if found.get("reason") else None


def detectable_errors(found: Mapping[str, Any], places: Sequence[float] = (0.5,)) -> list[str]:
    """Return the smallest errors that data of this size would have shown: true rates, if all probabilities or only some are wrong.

    Parameters
    ----------
    places : scores, as `places_of` returns them

    Examples
    --------
    >>> detectable_errors({"n_effective": 600.0, "slope": 0.48})
    ['all too extreme: a true rate of 75.8 % or less where the model says 90 %']
    >>> detectable_errors({"intercept": 0.16, "slope": 0.48}, [0.04])[0]
    'all probabilities shifted alike: a true rate of 4.7 % or more, or 3.4 % or less, where the model says 4 %'
    >>> detectable_errors({"slope": 0.48}, [0.04])
    ['all too extreme: a true rate of 16.1 % or more where the model says 4 %']
    """
    shown, intercept, slope = [], found.get("intercept"), found.get("slope")
    if intercept is not None:
        stated = [_shifted(float(intercept), each) for each in places]
        shown.append(f"all probabilities shifted alike: a true rate of {' and '.join(stated)}")
    if slope is not None:
        stated = [_sloped(float(slope), each) for each in places]
        shown.append(f"all too extreme: a true rate of {' and '.join(dict.fromkeys(stated))}")
    if found.get("local_error") is not None:
        points = 100.0 * found["local_error"]
        shown.append(
            f"only the scores wrong that occur most: a true rate {points:.1f} percentage points above or below them"
        )
    return shown


def _shifted(intercept: float, place: float) -> str:
    at = _log_odds(place)
    higher, lower = _rate(at + intercept), _rate(at - intercept)
    return f"{higher} or more, or {lower} or less, where the model says {percent(place)}"


def _sloped(slope: float, place: float) -> str:
    shown = place if abs(_log_odds(place)) >= NEAREST_LOG_ODDS else FAR
    side = "or less" if shown > 0.5 else "or more"
    return f"{_rate((1.0 - slope) * _log_odds(shown))} {side} where the model says {percent(shown)}"


def _log_odds(share: float) -> float:
    return math.log(share / (1.0 - share))


def _rate(log_odds: float) -> str:
    return f"{50.0 * (1.0 + math.tanh(log_odds / 2.0)):.1f} %"


def detectable_text(found: Mapping[str, Any], places: Sequence[float] = (0.5,)) -> str:
    """Return what data of this size would have shown, as one text.

    Examples
    --------
    >>> detectable_text({"n_effective": 600.0, "slope": 0.48})
    'All too extreme: a true rate of 75.8 % or less where the model says 90 %.'
    """
    why = unknown_detectable(found)
    if why is not None:
        return f"Not known: {why}."
    shown = "; ".join(detectable_errors(found, places))
    return f"{shown[:1].upper()}{shown[1:]}." if shown else "No error of any size."
