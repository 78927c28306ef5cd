"""Durations of fixed length: ISO 8601, or a number with a unit (`7d`, `24h`, `30m`). Every entrance reads them here."""

from __future__ import annotations

import re
from fractions import Fraction

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W|(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,6})?)S)?)?)",
    re.ASCII,
)
_SHORT = re.compile(r"(?P<number>\d{1,12})(?P<unit>w|d|h|min|m|s)", re.ASCII)
_SHORT_UNIT_S = {"w": 604_800, "d": 86_400, "h": 3600, "min": 60, "m": 60, "s": 1}
_UNIT_S = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_MAX_TEXT = 40


def parse_duration(text: str) -> Fraction | int:
    """Return the seconds of a duration of fixed length.

    Months and years are rejected: they have no fixed length. `m` and `min` are minutes.

    >>> parse_duration("P1DT1H"), parse_duration("7d"), parse_duration("30m")
    (90000, 604800, 1800)
    """
    short = _SHORT.fullmatch(text)
    if short:
        return int(short["number"]) * _SHORT_UNIT_S[short["unit"]]
    found = _DURATION.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if not found or text.endswith(("P", "T")):
        detail = "a duration of weeks, days, hours, minutes and seconds: P7D, PT1H, 7d, 24h, 30m"
        raise ValueError(detail)
    total = Fraction(0)
    for unit, number in found.groupdict().items():
        if number:
            total += Fraction(number.replace(",", ".")) * _UNIT_S[unit]
    return int(total) if total.denominator == 1 else total


def iso_duration(text: str) -> str:
    """Return a duration as ISO 8601; one that is so written is unchanged.

    >>> iso_duration("24h"), iso_duration("PT24H"), iso_duration("90min")
    ('P1D', 'PT24H', 'PT1H30M')
    """
    return duration_of(int(parse_duration(text))) if _SHORT.fullmatch(text) else text


_LETTERS = ((86_400, "D"), (3600, "H"), (60, "M"), (1, "S"))


def duration_of(seconds: int) -> str:
    """Return seconds as a duration of days, hours, minutes and seconds.

    >>> duration_of(3600), duration_of(90061)
    ('PT1H', 'P1DT1H1M1S')
    """
    parts = []
    for length, letter in _LETTERS:
        n, seconds = divmod(seconds, length)
        if n:
            parts.append(f"{n}{letter}")
    days = parts.pop(0) if parts and parts[0].endswith("D") else ""
    return f"P{days}" + (f"T{''.join(parts)}" if parts else "")
