"""Columns of one file as `calibrant.fill_by` takes them, whatever the format of the file.

Event times are texts with an offset, naive texts in a stated zone, or numbers in a stated unit. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.labels import KnownClasses, class_indices, labels_of
from calibrant.cli.input_files.roles import classes_of
from calibrant.cli.input_files.tables import FileTable
from calibrant.client import Pseudonyms
from calibrant.input.timestamps import TIME_UNITS


class RowColumns:
    """Reader of the columns of a table by their role.

    Parameters
    ----------
    classes : names of the classes; None for those of the columns of scores
    ignored : labels that mean no label

    Attributes
    ----------
    classes : names of the classes, also those of the columns of scores once these are read; None if labels are indices
    n_repeated : event times of an hour that the stated zone had twice
    """

    def __init__(
        self, table: FileTable, classes: Sequence[str] | None, ignored: Sequence[int]
    ) -> None:
        self.table, self.classes, self._ignored = table, classes, ignored
        self.n_repeated = 0

    def plain(self, scores: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
        """Return scores as numbers, and labels as names of `classes`, else indices; columns of lists of ratings are unchanged."""
        columns: dict[str, Any] = {name: self.table.numbers([name]) for name in scores}
        found = {name: each[:, 0] if each.shape[1] == 1 else each for name, each in columns.items()}
        if self.classes is None and len(scores) > 1:
            self.classes = classes_of(scores)
        width = sum(1 if each.ndim == 1 else each.shape[1] for each in found.values())
        known = KnownClasses(self.classes or (), self._ignored, max(width, 2))
        return found | {name: self._labels(name, known) for name in labels}

    def _labels(self, name: str, known: KnownClasses) -> Any:
        column = getattr(self.table, "columns", {}).get(name)
        first = (
            next((each for each in column if each is not None), None)
            if column is not None
            else None
        )
        if isinstance(first, list | np.ndarray):
            return column
        texts = self.table.texts(name, known.names)
        (found,) = class_indices([texts], known, self.table, name, [])
        if self.classes is None:
            return labels_of([found])
        return [None if each is None else self.classes[each] for each in found]

    def times(self, column: str | None, timezone: str | None, unit: str | None) -> dict[str, Any]:
        """Return event times: numbers with a unit, or texts, naive ones with the offset of the zone."""
        if column is None:
            return {}
        self._check(column, "--time")
        if unit is not None:
            return {column: numbers_in_unit(self.table, column, unit)}
        texts: Sequence[str | None] = self.table.texts(column)
        if timezone is not None:
            texts, self.n_repeated = in_zone(self.table, column, texts, zone_of(timezone))
        return {column: list(texts)}

    def names(
        self, columns: Sequence[str], pseudonyms: Pseudonyms | None = None
    ) -> dict[str, list[str]]:
        """Return columns of names, with a value in every row."""
        return {name: self._names(name, pseudonyms) for name in columns}

    def _names(self, column: str, pseudonyms: Pseudonyms | None) -> list[str]:
        self._check(column, "column")
        found = []
        for row, text in enumerate(self.table.texts(column)):
            if text is None:
                detail = "Received no value; expected one per row."
                raise InputFileError(
                    self.table.path, detail, "missing", column, row, self.table.line(row)
                )
            found.append(text if pseudonyms is None else pseudonyms.of(text))
        return found

    def _check(self, column: str, option: str) -> None:
        if column not in self.table.names:
            detail = f"Received {option} {column!r:.60}, which the file does not have."
            raise InputFileError(self.table.path, detail, "unknown_column")


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
