"""Names in the columns of a request: ids, units, cases and slices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column, Lists
from calibrant.input.value_checks import ViolationCollector

# Names are part of paths, where . and .. are folders: a client would change the path of a name that ends in them.
NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._:@-]{1,128}")
NAME_RULE = "1 to 128 characters of A-Za-z0-9._:@-, and neither . nor .."
INVALID_NAME = f"Received an invalid name; expected {NAME_RULE}."


class NameColumns:
    """Reader of columns of names. Errors of rows are noted."""

    def __init__(self, columns: Mapping[str, Any], violations: ViolationCollector) -> None:
        self.columns = columns
        self.violations = violations

    def texts(self, name: str) -> NDArray[Any]:
        """Return a column of names; numbers become their digits."""
        given = self.columns[name]
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
            given = given.astype(str)  # a number's digits are its name
        column = list(given)
        strings = set(map(type, column)) <= {str, np.str_}
        if not strings or not all_names(column):
            for i, text in enumerate(column):
                if not isinstance(text, str) or not NAME.fullmatch(text):
                    self.violations.row(name, i, "name", INVALID_NAME)
                    column[i] = "?"
        if name == "ids" and len(set(column)) < len(column):
            self._repeated(column)
        return np.array(column, dtype=object)

    def _repeated(self, ids: list[str]) -> None:
        seen: set[str] = set()
        for i, text in enumerate(ids):
            if text in seen:
                self.violations.row(
                    "ids",
                    i,
                    "repeated_id",
                    f"Received id {text!r} more than once; expected each id once per batch.",
                )
            seen.add(text)

    def slices(self, n: int) -> dict[str, NDArray[Any]]:
        """Return the slices of each row by key."""
        given = self.columns["slices"]
        if not isinstance(given, Mapping):
            raise CalibrationInputError.at(
                "/slices",
                "slices",
                "Received another type for slices; expected an object with one list of values per key.",
            )
        result: dict[str, NDArray[Any]] = {}
        for key, column in given.items():
            if not isinstance(key, str) or not NAME.fullmatch(key):
                raise CalibrationInputError.at(
                    "/slices", "name", f"Received an invalid slice key; expected {NAME_RULE}."
                )
            if ":" in key:
                detail = "Received a slice key with a colon, which separates key and value; use another character."
                raise CalibrationInputError.at(f"/slices/{key}", "name", detail)
            column = plain(f"slices/{key}", column)
            if isinstance(column, Column):
                self.violations.nulls(f"slices/{key}", column.unusable)
                column = names_or_times(f"slices/{key}", column)
            if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
                column = column.astype(str)
            if not isinstance(column, list | np.ndarray) or len(column) != n:
                detail = (
                    f"Received another number of values; expected one for each of the {n} rows."
                )
                raise CalibrationInputError.at(f"/slices/{key}", "length", detail)
            values = list(column)
            for i, text in enumerate(values):
                if not isinstance(text, str) or not NAME.fullmatch(text):
                    self.violations.row(f"slices/{key}", i, "name", INVALID_NAME)
                    values[i] = "?"
            result[key] = np.array(values, dtype=object)
        return result


def names_or_times(name: str, column: Column) -> Any:
    """Return the values of an Arrow column of names or of times."""
    values = column.values
    kinds = "M" if name == "event_times" else "iu"
    if isinstance(values, Lists) or values.ndim != 1 or values.dtype.kind not in f"O{kinds}":
        wanted = "timestamps or RFC 3339 texts" if name == "event_times" else "texts or integers"
        raise CalibrationInputError.at(
            f"/{name}", "arrow_type", f"Received another type; expected {wanted}."
        )
    return values


def all_names(column: Sequence[str]) -> bool:
    """Return whether all texts are names."""
    joined = "\n".join(column) + "\n"
    return joined.count("\n") == len(column) and bool(
        re.fullmatch(r"(?:(?!\.\.?\n)[A-Za-z0-9._:@-]{1,128}\n)*", joined)
    )
