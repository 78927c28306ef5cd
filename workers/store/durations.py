"""ISO 8601 durations of fixed length, for settings and windows."""

from __future__ import annotations

import re
from fractions import Fraction

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W|(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,6})?)S)?)?)",
    re.ASCII,
)
_UNIT_S = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_MAX_TEXT = 40


def parse_duration(text: str) -> Fraction | int:
    """Return the seconds of an ISO 8601 duration of fixed length.

    Months and years are rejected: they have no fixed length.

    >>> parse_duration("P1DT1H")
    90000
    """
    found = _DURATION.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if not found or text.endswith(("P", "T")):
        raise ValueError(
            "an ISO 8601 duration of weeks, days, hours, minutes and seconds (P7D, PT1H)"
        )
    total = Fraction(0)
    for unit, number in found.groupdict().items():
        if number:
            total += Fraction(number.replace(",", ".")) * _UNIT_S[unit]
    return int(total) if total.denominator == 1 else total
