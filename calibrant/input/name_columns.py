"""Names in the columns of a request: ids, units, cases and slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column, Lists
from calibrant.input.names import NAME_RULE, invalid_name, name_of, names_of
from calibrant.input.value_checks import ViolationCollector, flat


class NameColumns:
    """Reader of columns of names. Errors of rows are noted."""

    def __init__(self, columns: Mapping[str, Any], violations: ViolationCollector) -> None:
        self.columns = columns
        self.violations = violations

    def texts(self, name: str) -> NDArray[Any]:
        """Return a column of names; integers are named by their digits."""
        column = self._checked(name, self.columns[name])
        if name == "ids" and len(set(column)) < len(column):
            self._repeated(column)
        return np.array(column, dtype=object)

    def _checked(self, name: str, values: Any) -> list[str]:
        """Return the name of each value. Rows without one are noted."""
        values = values.tolist() if isinstance(values, np.ndarray) else list(values)
        found = names_of(values)
        for row, (value, each) in enumerate(zip(values, found, strict=True)):
            if each is None:
                self.violations.row(name, row, "name", invalid_name(value))
        return [each or "?" for each in found]

    def _repeated(self, ids: list[str]) -> None:
        seen: set[str] = set()
        for i, text in enumerate(ids):
            if text in seen:
                detail = f"Received id {text!r} more than once; expected each id once per batch."
                self.violations.row("ids", i, "repeated_id", detail)
            seen.add(text)

    def slices(self, n: int) -> dict[str, NDArray[Any]]:
        """Return the slices of each row by key."""
        given = self.columns["slices"]
        if not isinstance(given, Mapping):
            detail = "Received another type for slices; expected an object with one list of values per key."
            raise CalibrationInputError.at("/slices", "slices", detail)
        result: dict[str, NDArray[Any]] = {}
        for key, column in given.items():
            name = self._key(key)
            if name in result:
                detail = f"Received slice key {name!r} twice, in two spellings; expected it once."
                raise CalibrationInputError.at(f"/slices/{name}", "name", detail)
            result[name] = np.array(self._slice(f"slices/{key}", column, n), dtype=object)
        return result

    @staticmethod
    def _key(key: Any) -> str:
        name = name_of(key) if isinstance(key, str) else None
        if name is None:
            detail = f"Received an invalid slice key; expected {NAME_RULE}."
            raise CalibrationInputError.at("/slices", "name", detail)
        if ":" in name:
            detail = "Received a slice key with a colon, which separates key and value; use another character."
            raise CalibrationInputError.at(f"/slices/{key}", "name", detail)
        return name

    def _slice(self, name: str, column: Any, n: int) -> list[str]:
        column = plain(name, column)
        if isinstance(column, Column):
            self.violations.nulls(name, column.unusable)
            column = names_or_times(name, column)
        column = flat(column)
        if not isinstance(column, list | np.ndarray) or len(column) != n:
            detail = f"Received another number of values; expected one for each of the {n} rows."
            raise CalibrationInputError.at(f"/{name}", "length", detail)
        return self._checked(name, column)


def names_or_times(name: str, column: Column) -> Any:
    """Return the values of an Arrow column of names or of times."""
    values = column.values
    kinds = "M" if name == "event_times" else "iu"
    if isinstance(values, Lists) or flat(values).ndim != 1 or values.dtype.kind not in f"O{kinds}":
        wanted = "timestamps or RFC 3339 texts" if name == "event_times" else "texts or integers"
        detail = f"Received another type; expected {wanted}."
        raise CalibrationInputError.at(f"/{name}", "arrow_type", detail)
    return values
