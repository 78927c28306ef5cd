"""Collector of violations while columns are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError, Violation

MAX_VIOLATIONS = 100


class ViolationCollector:
    """The violations found so far, and their rows."""

    def __init__(self) -> None:
        self._of_row: dict[int, Violation] = {}

    @property
    def found(self) -> list[Violation]:
        """Return one violation per invalid row, in the order of rows."""
        return [self._of_row[row] for row in sorted(self._of_row)]

    def row(self, column: str, row: int, rule: str, detail: str) -> None:
        """Note that a row breaks a rule. Only its first violation is stored."""
        if row not in self._of_row:
            self._of_row[row] = Violation(f"/{column}/{row}", rule, detail)

    def rows(self, column: str, bad: NDArray[np.bool_], rule: str, detail: str) -> None:
        """Note that all rows marked in `bad` break a rule."""
        for row in np.flatnonzero(bad):
            self.row(column, int(row), rule, detail)

    def nulls(self, column: str, rows: NDArray[np.bool_] | None) -> None:
        """Note that the marked rows have null where a value is required."""
        if rows is not None:
            detail = (
                "Received null; expected a value. Only a label may be null, while there is none."
            )
            self.rows(column, rows, "null", detail)

    def bad_rows(self, n: int) -> NDArray[np.bool_]:
        bad = np.zeros(n, bool)
        bad[list(self._of_row)] = True
        return bad

    def refuse(self) -> None:
        """Raise what was found, the first rows first."""
        raise CalibrationInputError(self.found[:MAX_VIOLATIONS])
