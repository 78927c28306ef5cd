"""Columns of a table under the names that they have in a batch, and violations under the names of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.arrow import is_arrow, plain, read_table
from calibrant.input.arrow_column import Column, Lists

SCORES = ("probabilities", "logits", "confidences")
LABELS = ("labels", "label_counts")


def table_columns(table: Any) -> Mapping[str, Any]:
    if isinstance(table, Mapping):
        return table
    if is_arrow(table):
        return read_table(table)
    detail = f"Received {type(table).__name__}; expected a mapping of columns or an object with __arrow_c_stream__."
    raise CalibrationInputError.at("", "table", detail)


def named_columns(
    named: Mapping[str, str | Sequence[str] | None], columns: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return the names of the table's columns by the name of their column in a batch."""
    found = {
        name: [column] if isinstance(column, str) else list(column)
        for name, column in named.items()
        if column is not None
    }
    for group in (SCORES, LABELS, ("ids",), ("cases",), ("weights",)):
        if not any(name in found for name in group):
            found |= {name: [name] for name in group if name in columns}
    for name in {column for some in found.values() for column in some}:
        if name not in columns:
            known = ", ".join(map(str, list(columns)[:20]))
            raise CalibrationInputError.at(
                f"/{name}", "missing", f"The table has no column {name!r}; it has {known}."
            )
    return found


def one_column(name: str, names: Any, columns: Mapping[str, Any]) -> Any:
    """Return a column, or several as one: numbers as a matrix, raters' labels as lists."""
    if isinstance(names, str):
        if names not in columns:
            raise CalibrationInputError.at(
                f"/{names}", "missing", f"The table has no column {names!r}."
            )
        return columns[names]
    if len(names) == 1 and name not in ("probabilities", "logits", "label_counts"):
        return columns[names[0]]
    parts = [plain(each, columns[each]) for each in names]
    if len(names) == 1:
        return parts[0]
    if len({len(part) for part in parts}) > 1:
        raise CalibrationInputError.at(
            f"/{names[0]}", "length", "columns of one table have equally many rows"
        )
    return _raters(parts) if name == "labels" else _matrix(names, parts)


def is_flat(part: Any) -> bool:
    """Return whether a column has one number per row, not one per class."""
    values = part.values if isinstance(part, Column) else part
    if isinstance(values, list):
        return bool(values) and not isinstance(values[0], list | np.ndarray)
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiu"


def _raters(parts: Sequence[Any]) -> Any:
    """Return the raters' columns as one column of lists, without missing ratings."""
    if all(_is_integers(part) for part in parts):
        arrays = [np.asarray(part.values if isinstance(part, Column) else part) for part in parts]
        values = np.stack(arrays, axis=1)
        null = np.stack(
            [
                part.null if isinstance(part, Column) else np.zeros(len(part), bool)
                for part in parts
            ],
            axis=1,
        )
        lengths = (~null).sum(axis=1)
        offsets = np.append(0, np.cumsum(lengths))
        return Column(Lists(values[~null], offsets, lengths == 0), lengths == 0)
    rows = zip(*(_as_list(part) for part in parts), strict=True)
    return [[rating for rating in row if rating is not None] or None for row in rows]


def _as_list(part: Any) -> list[Any]:
    if isinstance(part, Column):
        ratings = part.ratings()
        return ratings.as_lists() if isinstance(ratings, Lists) else ratings
    return part.tolist() if isinstance(part, np.ndarray) else list(part)


def _is_integers(part: Any) -> bool:
    values = part.values if isinstance(part, Column) else part
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu"


def _matrix(names: Sequence[str], parts: Sequence[Any]) -> Any:
    arrays: list[NDArray[Any]] = []
    for name, part in zip(names, parts, strict=True):
        array = part.values if isinstance(part, Column) else np.asarray(part)
        if isinstance(array, Lists) or array.ndim != 1 or array.dtype.kind not in "fiu":
            raise CalibrationInputError.at(
                f"/{name}", "vector", f"{name} is one of several columns; expected numbers."
            )
        arrays.append(array)
    null = [part.null for part in parts if isinstance(part, Column)]
    matrix = np.stack(arrays, axis=1)
    return Column(matrix, np.any(null, axis=0) if null else np.zeros(len(matrix), np.bool_))


def in_table(
    violations: Iterable[Violation], wanted: Mapping[str, Sequence[str]]
) -> list[Violation]:
    """Return violations with the names of the table's own columns."""
    found = []
    for each in violations:
        head, _, rest = each.pointer[1:].partition("/")
        if head == "slices":
            pointer = f"/{rest}"
        elif head in wanted:
            pointer = "/" + ",".join(wanted[head]) + (f"/{rest}" if rest else "")
        else:
            pointer = each.pointer
        found.append(replace(each, pointer=pointer))
    return found
