"""Event times of a file: texts with an offset, naive texts in a stated zone, or numbers in a stated unit. Nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.tables import FileTable
from calibrant.input.timestamps import TIME_UNITS


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises
    ------
    ValueError
        There is no such zone on this machine.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        detail = f"Received --timezone {name!r}; expected a name such as Europe/Berlin or UTC."
        raise ValueError(detail) from error


def in_zone(
    table: FileTable, column: str, texts: Sequence[str | None], zone: ZoneInfo
) -> tuple[list[str | None], int]:
    """Return naive texts with the offset that the zone had, others unchanged; and how many are of a repeated hour.

    A time of the hour that is repeated when clocks are set back is taken as the first.

    Raises
    ------
    InputFileError
        A time that the zone did not have.
    """
    found: list[str | None] = []
    n_repeated = 0
    for row, text in enumerate(texts):
        at = None if text is None else _naive(text)
        if at is None:
            found.append(text)
            continue
        local = at.replace(tzinfo=zone)
        back = local.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
        if back != at:
            detail = f"Received {text!r:.60}, which {zone.key} did not have: clocks were set forward. Correct the time."
            raise InputFileError(table.path, detail, "no_such_time", column, row, table.line(row))
        n_repeated += local.utcoffset() != local.replace(fold=1).utcoffset()
        found.append(local.isoformat())
    return found, n_repeated


def _naive(text: str) -> datetime | None:
    """Return a time without an offset; None for another text."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return at if at.tzinfo is None else None


def numbers_in_unit(table: FileTable, column: str, unit: str) -> Any:
    """Return a column of numbers that count from 1970.

    Raises
    ------
    ValueError
        An unknown unit.
    InputFileError
        A value that is no number.
    """
    if unit not in TIME_UNITS:
        raise ValueError(f"Received --time-unit {unit!r}; expected {' or '.join(TIME_UNITS)}.")
    return table.numbers([column])[:, 0]
