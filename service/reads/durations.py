"""ISO 8601 durations in responses."""

UNITS = ((86_400, "D"), (3600, "H"), (60, "M"), (1, "S"))


def duration_of(seconds: int) -> str:
    """Return seconds as a duration of days, hours, minutes and seconds.

    >>> duration_of(3600), duration_of(90061)
    ('PT1H', 'P1DT1H1M1S')
    """
    parts = []
    for length, letter in UNITS:
        n, seconds = divmod(seconds, length)
        if n:
            parts.append(f"{n}{letter}")
    days = parts.pop(0) if parts and parts[0].endswith("D") else ""
    return f"P{days}" + (f"T{''.join(parts)}" if parts else "")
