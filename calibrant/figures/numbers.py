"""Numbers as a reader of prose expects them: never with an exponent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

MISSING = "–"
SMALLEST, LARGEST = 1e-4, 1e9
ABOVE_INTERVAL = "The interval is of the true error, without the part due to chance; it can lie below the measured value."


def plain_number(value: float | None, digits: int = 3) -> str:
    """Return a number with at most `digits` digits after the first that counts, without exponent.

    Examples
    --------
    >>> [plain_number(value) for value in (0.15414, 0.0312, 2.5e97, -1.5e-7, 12345.678, 0.0, None)]
    ['0.154', '0.031', 'more than 1,000,000,000', 'between −0.0001 and 0', '12,346', '0', '–']
    >>> plain_number(0.00042), plain_number(1.8657), plain_number(-0.25)
    ('0.0004', '1.866', '−0.250')
    """
    return MISSING if value is None or value != value else _written(value, _decimals(value, digits))


def plain_numbers(values: Sequence[float | None], digits: int = 3) -> list[str]:
    """Return numbers that are compared, with as many decimals as the smallest of them needs.

    Examples
    --------
    >>> plain_numbers([0.00442, 0.00601]), plain_numbers([0.0, 0.0645, None])
    (['0.0044', '0.0060'], ['0', '0.065', '–'])
    """
    known = [each for each in values if each is not None and each == each]
    decimals = max((_decimals(each, digits) for each in known), default=digits)
    return [_written(each, decimals) if each in known else MISSING for each in values]


def _decimals(value: float, digits: int) -> int:
    return digits + 1 if SMALLEST <= abs(value) < 5 * 10**-digits else digits


def _written(value: float, decimals: int) -> str:
    size, sign = abs(value), "−" if value < 0 else ""
    if size == 0:
        return "0"
    if size > LARGEST:
        return f"{'less than −' if sign else 'more than '}{LARGEST:,.0f}"
    if size < SMALLEST:
        return "between −0.0001 and 0" if sign else "below 0.0001"
    if size >= 1000:
        return f"{sign}{size:,.0f}"
    return f"{sign}{size:.{decimals}f}"


def interval_text(bounds: Sequence[float | None] | None) -> str:
    """Return an interval.

    Examples
    --------
    >>> interval_text([0.1135, 0.1972]), interval_text(None)
    ('0.114 to 0.197', '–')
    """
    if bounds is None:
        return MISSING
    return " to ".join(plain_numbers(bounds))


def to_the_minute(timestamp: str) -> str:
    """Return a time to the minute in UTC.

    Examples
    --------
    >>> to_the_minute("2026-11-26T08:29:12+02:00")
    '2026-11-26 06:29 UTC'
    """
    return f"{datetime.fromisoformat(timestamp).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def percent(share: float | None) -> str:
    """Return a share in per cent.

    Examples
    --------
    >>> [percent(share) for share in (0.95, 0.5, 0.0004, 0.0, 1.0, None)]
    ['95 %', '50 %', '0.04 %', '0 %', '100 %', '–']
    """
    if share is None:
        return MISSING
    if 0 < share < 1e-4:
        return "below 0.01 %"
    value = 100.0 * share
    return f"{value:.0f} %" if value in (0, 100) or 1 <= value <= 99 else f"{value:.2f} %"


def counted(n: int | float | None, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "case"), counted(1200, "unit"), counted(3, "study", "studies"), counted(None, "unit")
    ('1 case', '1,200 units', '3 studies', 'an unknown number of units')
    """
    plural = many or f"{one}s"
    if n is None:
        return f"an unknown number of {plural}"
    return f"{n:,.0f} {one if n == 1 else plural}"


def by_whom(name: str | None) -> str:
    """Return who did something: the name of a key or person; a service without keys stores its one tenant.

    >>> by_whom("ann"), by_whom("default"), by_whom(None)
    ('by ann', 'without a key', '–')
    """
    if not name:
        return MISSING
    return "without a key" if name == "default" else f"by {name}"


def above_interval_note(estimates: Iterable[Mapping[str, Any] | None]) -> str:
    """Return why a value can be above its own interval, if one of these is; else nothing.

    Examples
    --------
    >>> above_interval_note([{"value": 0.0618, "interval": [0.0, 0.024]}])
    'The interval is of the true error, without the part due to chance; it can lie below the measured value.'
    >>> above_interval_note([{"value": 0.02, "interval": [0.0, 0.024]}, {"value": None}, None])
    ''
    """
    return ABOVE_INTERVAL if any(map(is_above_interval, estimates)) else ""


def is_above_interval(estimate: Mapping[str, Any] | None) -> bool:
    """Return whether a value is above its own interval."""
    found = estimate or {}
    high = (found.get("interval") or (None, None))[1]
    return found.get("value") is not None and high is not None and bool(found["value"] > high)


def is_beyond_range(temperature: float | None) -> bool:
    """Return whether a temperature is at an end of the range in which one is looked for, where none fits best.

    >>> is_beyond_range(32.0), is_beyond_range(1.5), is_beyond_range(None)
    (True, False, False)
    """
    return temperature is not None and not 1.0001 / 32 < temperature < 31.999
