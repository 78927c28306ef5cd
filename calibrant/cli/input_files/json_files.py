"""JSON files: rows, columns or records; other shapes are named, with the call that writes records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from calibrant.cli.input_files.compressed import opened_text
from calibrant.cli.input_files.errors import FormatErrors, InputFileError
from calibrant.cli.input_files.tables import ColumnTable, FileTable
from calibrant.cli.input_files.text_format import TextFormat

SHAPES = "a list of rows, an object of columns, or records"
RECORDS = 'Write records: DataFrame.to_json(orient="records").'


def read_json(path: Path, form: TextFormat) -> FileTable:
    """Return the table of a JSON document."""
    with FormatErrors(path, "JSON"), opened_text(path, "utf-8-sig") as file:
        found = json.load(file)
    if isinstance(found, dict) and isinstance(found.get("predictions"), list):
        found = found["predictions"]
    if isinstance(found, dict):
        return ColumnTable(path, _columns(path, found), form.missing_beside_nulls)
    if not isinstance(found, list) or not found:
        detail = f"Received {_kind(found)}; expected {SHAPES}. {RECORDS}"
        raise InputFileError(path, detail, "format")
    if isinstance(found[0], dict):
        return ColumnTable(path, _columns_of(path, found), form.missing_beside_nulls)
    columns = {path.stem: found}
    return ColumnTable(path, columns, form.missing_beside_nulls, is_named=False)


def read_json_lines(path: Path, form: TextFormat) -> FileTable:
    """Return the table of JSON lines: one record per line, empty lines are skipped."""
    records = []
    with FormatErrors(path, "JSON lines"), opened_text(path, "utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                records.append(_record(path, line, number))
    if not records:
        raise InputFileError(path, "Received no line; expected one record per line.", "empty")
    return ColumnTable(path, _columns_of(path, records), form.missing_beside_nulls)


def _record(path: Path, line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        detail = f"Line {number} is not JSON: {error}. Expected one record per line."
        raise InputFileError(path, detail, "format") from error


def _columns(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Return an object of columns; reject the other shapes of objects."""
    if not found:
        raise InputFileError(path, f"Received an empty object; expected {SHAPES}.", "empty")
    for name, column in found.items():
        if not isinstance(column, list):
            _reject_shape(path, found, name, column)
    if {"columns", "data"} <= found.keys() or "schema" in found:
        _reject_shape(path, found, "data", found.get("data"))
    return found


def _reject_shape(path: Path, found: dict[str, Any], name: str, column: Any) -> NoReturn:
    if {"columns", "data"} <= found.keys():
        received = 'columns, index and data apart (orient="split")'
    elif "schema" in found:
        received = 'a schema and data (orient="table")'
    elif isinstance(column, dict):
        received = "an object of objects, as DataFrame.to_json() writes by default"
    else:
        received = f"{_kind(column)} as {name!r:.60}"
    raise InputFileError(path, f"Received {received}; expected {SHAPES}. {RECORDS}", "format")


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an empty list", str: "a text", type(None): "null"}
    return kinds.get(type(value), f"{value!r:.60}")


def _columns_of(path: Path, records: list[Any]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for each in records if isinstance(each, dict) for name in each))
    for row, each in enumerate(records):
        if not isinstance(each, dict):
            detail = f"Received {each!r:.60}; expected an object as in row 0."
            raise InputFileError(path, detail, "record", None, row)
    if not names:
        raise InputFileError(path, "Received records without fields; expected fields.", "empty")
    return {name: [each.get(name) for each in records] for name in names}
