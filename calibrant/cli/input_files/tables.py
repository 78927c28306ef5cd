"""Tables: named columns of one file, as numbers or as texts, whatever the format of the file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.file_errors import NUMBER_ADVICE, InputFileError
from calibrant.input.cell_texts import value_of

Floats = NDArray[np.float64]


class FileTable(Protocol):
    """Columns of a file.

    Attributes
    ----------
    path : of the file
    names : of its columns, in their order
    is_named : whether the file names its columns; otherwise they are "0", "1", ...
    missing : texts that mean no value
    """

    path: Path
    names: list[str]
    is_named: bool
    missing: frozenset[str]

    def numbers(self, names: Sequence[str]) -> Floats:
        """Return columns as float64 (n, len(names)); a column of lists gives as many columns as its lists have.

        Raises
        ------
        InputFileError
            A value is missing or no number.
        """

    def texts(self, name: str, declared: Collection[str] = ()) -> list[str | None]:
        """Return a column as texts, None where it has no value; a `declared` text is always a value."""

    def line(self, row: int) -> int | None:
        """Return the line of a row in a text file, from 1; None for other formats."""


class ColumnTable:
    """A table whose columns are in memory.

    Parameters
    ----------
    path : of the file
    columns : arrays (n,) or (n, k), or lists, by name
    missing, is_named : as in `FileTable`
    """

    def __init__(
        self,
        path: Path,
        columns: Mapping[str, Any],
        missing: frozenset[str],
        is_named: bool = True,
    ) -> None:
        self.path, self.columns, self.is_named = path, dict(columns), is_named
        self.missing = missing
        self.names = list(self.columns)
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            detail = f"Received columns of different lengths ({listed}); expected equal lengths."
            raise InputFileError(path, detail, "length")

    def numbers(self, names: Sequence[str]) -> Floats:
        """Return columns as numbers; see `FileTable`."""
        if not names:
            return np.zeros((0, 0))
        parts = [self._numbers(name) for name in names]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _numbers(self, name: str) -> Floats:
        column = self.columns[name]
        try:
            found = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise self._first_error(name, column) from None
        return found[:, None] if found.ndim == 1 else found.reshape(len(found), -1)

    def _first_error(self, name: str, column: Any) -> InputFileError:
        """Return the error of the first value that is no number or no list of the first one's length."""
        expected = np.size(column[0]) if len(column) else 1
        for row, value in enumerate(column):
            try:
                size = np.asarray(value, np.float64).size
            except (TypeError, ValueError):
                detail = f"Received {value!r:.60}; expected a number. {NUMBER_ADVICE}"
                return InputFileError(self.path, detail, "number", name, row)
            if size != expected:
                detail = f"Received {size} values; expected {expected} as in row 0."
                return InputFileError(self.path, detail, "length", name, row)
        return InputFileError(self.path, "Received values that are no numbers.", "number", name)

    def texts(self, name: str, declared: Collection[str] = ()) -> list[str | None]:
        """Return a column as texts; see `FileTable`."""
        column = self.columns[name]
        if getattr(column, "shape", ())[1:] == (1,):
            column = column[:, 0]
        values = column.tolist() if hasattr(column, "tolist") else list(column)
        found = (_text(value) for value in values)
        return [None if each is None else value_of(each, self.missing, declared) for each in found]

    def line(self, row: int) -> int | None:
        """Return None: these formats have no lines."""
        return None


def _text(value: Any) -> str | None:
    """Return a value as text, None for a null; a float that is a whole number as that number.

    >>> [_text(value) for value in ("cat", 3, 3.0, float("nan"), None, True, "")]
    ['cat', '3', '3', None, None, 'true', '']
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
