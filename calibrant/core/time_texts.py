"""Days, lengths of time and dated events in sentences."""

from __future__ import annotations

from datetime import UTC, datetime

_WORDS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def day_of(at_s: int) -> str:
    """Return a day, for sentences.

    >>> day_of(1794000000)
    '6 Nov 2026'
    """
    at = datetime.fromtimestamp(at_s, UTC)
    return f"{at.day} {at:%b %Y}"


def period_text(period: tuple[int, int] | None) -> str:
    """Return the days of a period, which are those that it includes.

    >>> period_text((1794000000, 1794086400)), period_text((1793923200, 1794009600)), period_text(None)
    (' of 6 Nov 2026 to 7 Nov 2026', ' of 6 Nov 2026', '')
    """
    if period is None:
        return ""
    first, last = day_of(period[0]), day_of(period[1] - 1)
    return f" of {first}" if first == last else f" of {first} to {last}"


def event_text(kind: str, name: str) -> str:
    """Return kind and name of a dated event; of other kinds the name alone.

    >>> event_text("version", "2.1"), event_text("scanner", "new at B"), event_text("other", "moved")
    ('version 2.1', 'scanner: new at B', 'moved')
    """
    if kind == "other":
        return name
    return f"{kind} {name}" if kind == "version" else f"{kind}: {name}"


def length_text(seconds: int) -> str:
    """Return a length of time in words, in its largest complete unit.

    >>> length_text(7 * 86_400), length_text(3600)
    ('7 days', '1 hour')
    """
    unit_s, name = next(each for each in _WORDS if seconds % each[0] == 0)
    n = seconds // unit_s
    return f"{n} {name}{'' if n == 1 else 's'}"
