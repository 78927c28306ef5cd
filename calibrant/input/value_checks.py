"""Checks of the values of a request: plain values before they are columns, and the violations found.

A batch of a million invalid rows costs a byte per row, not an object: only the first violations are stored, and the others
are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError, Violation

MAX_VIOLATIONS = 100  # quoted in an error
MAX_STORED = 1001  # one more than a caller that accepts the other rows may reject


class ViolationCollector:
    """The first violations, and all invalid rows."""

    def __init__(self) -> None:
        self._of_row: dict[int, Violation] = {}
        self._is_bad = bytearray()
        self.n_rows = 0

    @property
    def found(self) -> list[Violation]:
        """Return one violation per invalid row, in the order of rows; those of the first `MAX_STORED` rows."""
        return [self._of_row[row] for row in sorted(self._of_row)[:MAX_STORED]]

    def row(self, column: str, row: int, rule: str, detail: str) -> None:
        """Note that a row breaks a rule. Only its first violation is stored."""
        if row >= len(self._is_bad):
            self._is_bad += bytes(2 * row + 1024 - len(self._is_bad))
        if self._is_bad[row]:
            return
        self._is_bad[row] = 1
        self.n_rows += 1
        self._of_row[row] = Violation(f"/{column}/{row}", rule, detail)
        if len(self._of_row) > 2 * MAX_STORED:
            self._of_row = {row: self._of_row[row] for row in sorted(self._of_row)[:MAX_STORED]}

    def rows(
        self, column: str, bad: NDArray[np.bool_], rule: str, detail: str, hint: str = ""
    ) -> None:
        """Note that all rows marked in `bad` break a rule; the first says what to do, if there is a hint."""
        if hint and bad.any():
            self.row(column, int(np.argmax(bad)), rule, detail + hint)
        new = bad & ~self.bad_rows(len(bad))
        for row in np.flatnonzero(new)[:MAX_STORED]:
            self.row(column, int(row), rule, detail)
            new[row] = False
        others = int(np.count_nonzero(new))
        if others:
            known = self.bad_rows(max(len(bad), len(self._is_bad)))
            known[: len(new)] |= new
            self._is_bad = bytearray(known.tobytes())
            self.n_rows += others

    def nulls(self, column: str, rows: NDArray[np.bool_] | None) -> None:
        """Note that the marked rows have null where a value is required."""
        if rows is not None:
            detail = (
                "Received null; expected a value. Only a label may be null, while there is none."
            )
            self.rows(column, rows, "null", detail)

    def bad_rows(self, n: int) -> NDArray[np.bool_]:
        """Return which of `n` rows are invalid."""
        bad = np.zeros(n, bool)
        known = np.frombuffer(bytes(self._is_bad[:n]), np.bool_)
        bad[: len(known)] = known
        return bad

    def reject(self) -> None:
        """Raise what was found, the first rows first."""
        raise CalibrationInputError(self.found[:MAX_VIOLATIONS], self.n_rows)


_NUMBERS = frozenset({int, float})


def all_numbers(values: list[Any]) -> bool:
    """Return whether all are numbers. numpy's scalars are; booleans are not."""
    return _NUMBERS.issuperset(map(type, values)) or all(
        isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        for value in values
    )


def first_without_number(values: list[Any]) -> list[Any] | None:
    """Return the first value that is no number, in a list; None without one."""
    if all_numbers(values):
        return None
    return next([value] for value in values if not all_numbers([value]))


def described(column: Any) -> str:
    """Return what an argument is, for an error: its type, and shape and dtype where it has these.

    >>> described(np.zeros((2, 3), "f4")), described({"a": 1})
    ('an array of shape (2, 3) and type float32', 'a value of type dict')
    """
    if isinstance(column, np.ndarray):
        return f"an array of shape {column.shape} and type {column.dtype}"
    if isinstance(column, list):
        array = as_array(column)
        shape = f"of shape {array.shape}" if array is not None else f"of {len(column)} values"
        return f"a list {shape}"
    return kind_of(column)


def kind_of(value: Any) -> str:
    """Return what a value of another type is, for an error, without its content, which may be large.

    >>> kind_of(None), kind_of({"a": 1})
    ('null', 'a value of type dict')
    """
    return "null" if value is None else f"a value of type {type(value).__name__}"


def as_sequence(values: Any) -> list[Any] | None:
    """Return a list, a tuple, an array or a column of any library as a list of plain values; None for what is none."""
    # A set has no order, and an iterator is empty once it was read.
    if isinstance(values, str | bytes | dict | set | frozenset | Iterator) or (
        isinstance(values, np.ndarray) and values.ndim != 1
    ):
        return None
    if isinstance(values, np.ndarray):
        return list(values.tolist())
    if hasattr(values, "__array__"):
        return as_sequence(np.asarray(values))
    if not isinstance(values, Iterable):
        return None
    return [each.item() if isinstance(each, np.generic) else each for each in values]


def is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_list(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def flat(column: Any) -> Any:
    """Return an array with one column as a vector."""
    is_column = isinstance(column, np.ndarray) and column.ndim == 2 and column.shape[1] == 1
    return column[:, 0] if is_column else column


def as_array(column: Any) -> NDArray[Any] | None:
    """Return a numeric array, or None where the values are ragged or not all numbers."""
    try:
        array = np.asarray(column)
    except (ValueError, OverflowError, TypeError):
        return None
    return None if array.dtype == object else array


def as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf
