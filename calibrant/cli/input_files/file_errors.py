"""Errors of input files: which file, which column, which row, which rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

# Columns without a role are taken as scores, so a text is often in a column whose role was not stated.
NUMBER_ADVICE = "Correct the value, or state what the column is: --label, --unit, --id or --slice; --scores names the scores."

# Advice of the library, which names arguments of functions, and the options of the command that are the same.
_OPTIONS = {
    "pass them as logits": "pass --logits",
    "pass ignore_label=": "pass --ignore-label ",
    "pass normalize=true": "pass --normalize",
    "task=multilabel": "--task multilabel",
    ", or the same rows as label_counts": "",
}


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
        for argument, option in _OPTIONS.items():
            detail = detail.replace(argument, option)
        self.path, self.detail, self.rule, self.column, self.row = path, detail, rule, column, row
        place = str(path)
        if column is not None:
            place += f", column {column!r}"
        if row is not None:
            place += f", row {row}" + ("" if line is None else f" (line {line})")
        super().__init__(f"{place}: {detail} ({rule})")


class FormatErrors:
    """Turn what a reader of a format raises into an error that names the file."""

    def __init__(self, path: Path, expected: str) -> None:
        self.path, self.expected = path, expected

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, InputFileError | OSError):
            return
        if isinstance(error, RecursionError):
            detail = f"Expected {self.expected} of few levels; it is nested too deeply."
            raise InputFileError(self.path, detail, "format") from error
        if isinstance(error, MemoryError):
            detail = f"Expected {self.expected} that fits in memory; its head states {error}"
            raise InputFileError(self.path, detail, "memory") from error
        if isinstance(error, ValueError | EOFError | BadZipFile):
            # numpy advises to load pickles unsafely.
            reason = "it holds Python objects" if "pickle" in str(error) else str(error)
            detail = f"Expected {self.expected}; reading failed: {reason}"
            raise InputFileError(self.path, detail, "format") from error
