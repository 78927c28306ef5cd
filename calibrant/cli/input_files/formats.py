"""Reader of each format, by the ending of the file's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.cli.extras import needed_by
from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.tables import ColumnTable, FileTable
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.cli.input_files.text_tables import TextTable


def read_table(path: Path, form: TextFormat = DEFAULT_FORMAT) -> FileTable:
    """Return the table in a file, whose cells are written in this form.

    Raises
    ------
    InputFileError
        The file is missing, of an unknown or another format, or without rows.
    MissingExtraError
        Its format needs an extra.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        detail = f"Received the ending {path.suffix!r}; expected one of {', '.join(READERS)}."
        raise InputFileError(path, detail, "format")
    if not path.is_file():
        raise InputFileError(path, "The file does not exist. Check the path.", "missing")
    return reader(path, form)


def _npy(path: Path, form: TextFormat) -> FileTable:
    with FormatErrors(path, "a NumPy array"):
        array = np.load(path, allow_pickle=False)
    columns = {array_name(path): _rows(path, array)}
    return ColumnTable(path, columns, form.missing_texts, is_named=False)


def _npz(path: Path, form: TextFormat) -> FileTable:
    with FormatErrors(path, "NumPy arrays"), np.load(path, allow_pickle=False) as found:
        columns = {name: _rows(path, found[name], name) for name in found.files}
    return ColumnTable(path, columns, form.missing_texts)


def array_name(path: Path) -> str:
    """Return the name of the only array of a file: the file's own."""
    return path.stem


def _rows(path: Path, array: Any, name: str | None = None) -> Any:
    if getattr(array, "ndim", 0) not in (1, 2):
        detail = f"Received an array of shape {np.shape(array)}; expected (n,) or (n, columns)."
        raise InputFileError(path, detail, "shape", name)
    return array


def _json(path: Path, form: TextFormat) -> FileTable:
    with FormatErrors(path, "JSON"):
        found = json.loads(path.read_text("utf-8"))
    if isinstance(found, dict) and isinstance(found.get("predictions"), list):
        found = found["predictions"]
    if isinstance(found, dict):
        return ColumnTable(path, found, form.missing_beside_nulls)
    if not isinstance(found, list) or not found:
        raise InputFileError(path, "Expected a list of rows, or an object of columns.", "format")
    if isinstance(found[0], dict):
        return ColumnTable(path, _columns_of(path, found), form.missing_beside_nulls)
    columns = {array_name(path): found}
    return ColumnTable(path, columns, form.missing_beside_nulls, is_named=False)


def _columns_of(path: Path, records: list[Any]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for each in records if isinstance(each, dict) for name in each))
    for row, each in enumerate(records):
        if not isinstance(each, dict):
            detail = f"Received {each!r:.60}; expected an object as in row 0."
            raise InputFileError(path, detail, "record", None, row)
    return {name: [each.get(name) for each in records] for name in names}


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


class FormatErrors:
    """Turn what a reader of a format raises into an error that names the file."""

    def __init__(self, path: Path, expected: str) -> None:
        self.path, self.expected = path, expected

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from zipfile import BadZipFile

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


READERS: dict[str, Callable[[Path, TextFormat], FileTable]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": TextTable,
    ".tsv": TextTable,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".json": _json,
}
