"""Errors of input files: which file, which column, which row, which rule."""

from __future__ import annotations

from pathlib import Path


class InputFileError(ValueError):
    """A file cannot be scored.

    Parameters
    ----------
    path : of the file
    detail : what was received, what was expected, what to do
    rule : its name
    column : name of the column, None if the error is not about one
    row : row from 0, None if the error is not about one
    line : line of the file from 1, for text files

    Examples
    --------
    >>> print(InputFileError(Path("labels.csv"), "Received 'x'; expected a class.", "number", "label", 3, 5))
    labels.csv, column 'label', row 3 (line 5): Received 'x'; expected a class. (number)
    """

    def __init__(
        self,
        path: Path,
        detail: str,
        rule: str,
        column: str | None = None,
        row: int | None = None,
        line: int | None = None,
    ) -> None:
        self.path, self.detail, self.rule, self.column, self.row = path, detail, rule, column, row
        place = str(path)
        if column is not None:
            place += f", column {column!r}"
        if row is not None:
            place += f", row {row}" + ("" if line is None else f" (line {line})")
        super().__init__(f"{place}: {detail} ({rule})")
