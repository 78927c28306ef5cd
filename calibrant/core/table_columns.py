"""Columns of a table under the names that they have in a batch, and violations under the names of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.arrow import is_arrow, plain, read_table
from calibrant.input.arrow_column import Column

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
            detail = f"The table has no column {name!r}; it has {known}."
            raise CalibrationInputError.at(f"/{name}", "missing", detail)
    return found


def one_column(name: str, names: Any, columns: Mapping[str, Any]) -> Any:
    """Return a column, or several as one: numbers as a matrix, raters' labels as lists."""
    if isinstance(names, str):
        if names not in columns:
            detail = f"The table has no column {names!r}."
            raise CalibrationInputError.at(f"/{names}", "missing", detail)
        return columns[names]
    if len(names) == 1 and name not in ("probabilities", "logits", "label_counts"):
        return columns[names[0]]
    parts = [plain(each, columns[each]) for each in names]
    if len(names) == 1:
        return parts[0]
    if len({len(part) for part in parts}) > 1:
        detail = "columns of one table have equally many rows"
        raise CalibrationInputError.at(f"/{names[0]}", "length", detail)
    return _raters(parts) if name == "labels" else _matrix(names, parts)


def is_flat(part: Any) -> bool:
    """Return whether a column has one number per row, not one per class."""
    values = part.values if isinstance(part, Column) else part
    if isinstance(values, list):
        return bool(values) and not isinstance(values[0], list | np.ndarray)
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiu"


def _raters(parts: Sequence[Any]) -> Any:
    """Return the raters' columns as one column of lists; a missing rating is None or NaN."""
    columns = [_as_column(part) for part in parts]
    if all(_has_numbers(each) for each in columns):
        return _side_by_side(columns).ratings()
    return [list(row) for row in zip(*(each.as_list() for each in columns), strict=True)]


def _as_column(part: Any) -> Column:
    if isinstance(part, Column):
        return part
    values = part
    if not isinstance(part, np.ndarray):
        values = np.empty(len(part), object)
        values[:] = part
    return Column(values, np.zeros(len(part), np.bool_))


def _has_numbers(column: Column) -> bool:
    values = column.values
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiu"


def _side_by_side(columns: Sequence[Column]) -> Column:
    """Return columns of numbers as a matrix, with the place of each missing value."""
    matrix = np.stack([np.asarray(each.values) for each in columns], axis=1)
    cells = np.stack([each.null for each in columns], axis=1)
    return Column(matrix, np.zeros(len(matrix), np.bool_), cells if cells.any() else None)


def _matrix(names: Sequence[str], parts: Sequence[Any]) -> Column:
    columns = [_as_column(part) for part in parts]
    for name, each in zip(names, columns, strict=True):
        if not _has_numbers(each):
            detail = f"{name} is one of several columns; expected numbers."
            raise CalibrationInputError.at(f"/{name}", "vector", detail)
    return _side_by_side(columns)


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
