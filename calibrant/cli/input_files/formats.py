"""Reader of each format, by the ending of the file's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from calibrant.cli.input_files.compressed import GZIP, ending_of, opened_text
from calibrant.cli.input_files.file_errors import FormatErrors, InputFileError
from calibrant.cli.input_files.tables import ColumnTable, FileTable
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.cli.input_files.text_tables import TextTable
from calibrant.cli.missing_packages import needed_by


def read_table(path: Path, form: TextFormat = DEFAULT_FORMAT) -> FileTable:
    """Return the table in a file, whose cells are written in this form.

    Raises
    ------
    InputFileError
        The file is missing, of an unknown or another format, or without rows.
    MissingExtraError
        Its format needs an extra.
    """
    ending = ending_of(path)
    reader = READERS.get(ending)
    if reader is None or (path.suffix.lower() == GZIP and ending not in COMPRESSED):
        detail = (
            f"Received the ending {''.join(path.suffixes[-2:])!r}; expected one of {', '.join(READERS)}, "
            f"or one of {', '.join(COMPRESSED)} with {GZIP}."
        )
        raise InputFileError(path, detail, "format")
    if not path.is_file():
        raise InputFileError(path, "The file does not exist. Check the path.", "missing")
    return reader(path, form)


def _npy(path: Path, form: TextFormat) -> FileTable:
    with FormatErrors(path, "a NumPy array"):
        array = np.load(path, allow_pickle=False)
    columns = {path.stem: _rows(path, array)}
    return ColumnTable(path, columns, form.missing_texts, is_named=False)


def _npz(path: Path, form: TextFormat) -> FileTable:
    with FormatErrors(path, "NumPy arrays"), np.load(path, allow_pickle=False) as found:
        columns = {name: _rows(path, found[name], name) for name in found.files}
    return ColumnTable(path, columns, form.missing_texts)


def _rows(path: Path, array: Any, name: str | None = None) -> Any:
    if getattr(array, "ndim", 0) not in (1, 2):
        detail = f"Received an array of shape {np.shape(array)}; expected (n,) or (n, columns)."
        raise InputFileError(path, detail, "shape", name)
    return array


def _parquet(path: Path, form: TextFormat) -> FileTable:
    with needed_by("Reading Parquet files", "parquet"):
        import pyarrow.parquet as parquet
    with FormatErrors(path, "Parquet"):
        return _arrow_columns(path, parquet.read_table(path), form)


def _arrow(path: Path, form: TextFormat) -> FileTable:
    with needed_by("Reading Arrow files", "parquet"):
        import pyarrow as pa
    with FormatErrors(path, "an Arrow file or stream"):
        with path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        source = pa.memory_map(str(path))
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        return _arrow_columns(path, reader.read_all(), form)


def _arrow_columns(path: Path, table: Any, form: TextFormat) -> FileTable:
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        kind = str(column.type)
        plain = (
            kind.startswith(("int", "uint", "float", "double", "half")) and not column.null_count
        )
        if kind.startswith("timestamp"):
            columns[name] = _times(column)
        else:
            columns[name] = column.to_numpy() if plain else column.to_pylist()
    return ColumnTable(path, columns, form.missing_beside_nulls)


def _times(column: Any) -> list[str | None]:
    """Return timestamps as RFC 3339 texts, to the microsecond; without a time zone they have no offset."""
    import pyarrow as pa

    cut = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return [None if each is None else each.isoformat() for each in cut.to_pylist()]


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


READERS: dict[str, Callable[[Path, TextFormat], FileTable]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": TextTable,
    ".tsv": TextTable,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".json": read_json,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
}
COMPRESSED = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
