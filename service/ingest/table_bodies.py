"""Bodies of tables: CSV as columns of texts, with the line of each row; `.npy` arrays as columns.

What a header of an array states is compared with the bytes before an array is made. Consecutive arrays are scores, then labels: `numpy.save` to
one open file writes such a body, and so does `cat probabilities.npy labels.npy`. Headers are literals; a pickle is never read."""

from __future__ import annotations

import csv
import io
import math
from tokenize import TokenError
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.problems import BodyTooLarge, MalformedBody
from calibrant_server.service.ingest.parsed_batch import ParsedBatch

MAX_COLUMNS = 1_100


class CsvTable(NamedTuple):
    """Columns of texts by name, and the line of each row in the body, from 1."""

    columns: dict[str, list[str]]
    lines: list[int]


def read_csv(data: bytes, max_rows: int) -> CsvTable:
    """Return the table in a body, whose first line names the columns.

    Raises
    ------
    MalformedBody
        It is not UTF-8, or not CSV.
    CalibrationInputError
        A row of another length, no row, or a name that is repeated.
    BodyTooLarge
        More than `max_rows` rows, or too many columns.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"Received bytes that are not UTF-8 ({error.reason} at byte {error.start}). Encode the table as UTF-8."
        raise MalformedBody(detail, errors=[Violation("", "utf8", detail)]) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not names:
                names = _headings(cells)
                continue
            if len(cells) != len(names):
                detail = f"Received {len(cells)} cells; expected {len(names)}, one per column."
                raise CalibrationInputError.at(f"/{reader.line_num}", "length", detail)
            if len(rows) == max_rows:
                raise BodyTooLarge(
                    f"Received more than {max_rows} rows; expected at most {max_rows}. Send several batches."
                )
            rows.append(cells)
            lines.append(reader.line_num)
    except csv.Error as error:
        detail = f"Received a line {reader.line_num} that is not CSV ({error}). Quote cells as RFC 4180 describes."
        raise MalformedBody(detail, errors=[Violation("", "csv", detail)]) from error
    if not rows:
        raise CalibrationInputError.at(
            "", "empty", "Received no row; expected a line of names and at least one row."
        )
    return CsvTable(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), lines)


def _headings(cells: list[str]) -> list[str]:
    if len(cells) == 1 and not {";", "\t"}.isdisjoint(cells[0]):
        detail = "Received semicolons or tabs between the names of columns; expected commas, and a point in decimal numbers."
        raise CalibrationInputError.at("/1", "delimiter", detail)
    names = [cell.strip() for cell in cells]
    if len(names) > MAX_COLUMNS:
        raise BodyTooLarge(
            f"Received {len(names)} columns; expected at most {MAX_COLUMNS}. Leave out what is not scored."
        )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        detail = f"Received column {repeated[:60]!r} twice; expected it once."
        raise CalibrationInputError.at(f"/1/{repeated[:60]}", "repeated_key", detail)
    return names


NAMES = (
    "probabilities", "logits", "confidences", "labels", "label_counts", "label_shares", "n_ratings", "weights", "units", "cases", "ids",
)  # fmt: skip
DEFAULT_NAMES = ("probabilities", "labels")
_TEXTS, _MATRICES = (
    ("units", "cases", "ids"),
    ("probabilities", "logits", "label_counts", "label_shares"),
)
# NumPy parses the literal; of a long or deep one Python's parser and tokenizer raise errors of their own.
_NO_HEADER = (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError)
_READERS: Any = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npy(data: bytes, columns: str | None, max_rows: int) -> ParsedBatch:
    """Return the columns of a body of arrays.

    Parameters
    ----------
    columns : names of the arrays in their order, separated by commas; default: probabilities, labels

    Raises
    ------
    CalibrationInputError
        An unknown name, another number of arrays, or an array of another form.
    BodyTooLarge
        An array with more than `max_rows` rows, or too many columns.
    """
    names = _names_of_arrays(columns)
    found: Columns = {}
    at = 0
    for name in names:
        if at == len(data):
            _reject(
                name,
                "arrays",
                f"Received {len(found)} arrays; expected {len(names)}: {', '.join(names)}.",
            )
        array, at = _array(data, at, name, max_rows)
        found[name] = _column(name, array)
    if at != len(data):
        detail = f"Received {len(data) - at} bytes after the last array; expected {len(names)} arrays: {', '.join(names)}. Name more with `columns`."
        raise CalibrationInputError.at("", "arrays", detail)
    return ParsedBatch(found)


def _names_of_arrays(columns: str | None) -> tuple[str, ...]:
    if columns is None:
        return DEFAULT_NAMES
    names = tuple(each.strip() for each in columns.split(","))
    for name in names:
        if name not in NAMES or names.count(name) > 1:
            detail = (
                f"Received array {name[:60]!r}; expected each of {', '.join(NAMES)} at most once."
            )
            raise CalibrationInputError.at("/columns", "unknown_field", detail)
    return names


def _array(data: bytes, at: int, name: str, max_rows: int) -> tuple[NDArray[Any], int]:
    """Return the array whose magic is at this byte, as a view of the body, and where it ends."""
    file = io.BytesIO(memoryview(data)[at : at + npy.MAGIC_LEN + 4 + 2 * 10_000])
    try:
        shape, is_fortran, dtype = _READERS[npy.read_magic(file)](file)
    except _NO_HEADER as error:
        detail = f"Received bytes without a header of NumPy's format 1.0 or 2.0 ({str(error)[:120]}); expected an array of `numpy.save`."
        raise CalibrationInputError.at(f"/{name}", "npy", detail) from error
    if dtype.kind not in "fiub" or dtype.fields is not None:
        _reject(
            name,
            "dtype",
            f"Received dtype {str(dtype)[:60]}; expected floats or integers. Objects are not read.",
        )
    if len(shape) not in (1, 2) or any(each < 0 for each in shape):
        _reject(name, "shape", f"Received shape {str(shape)[:60]}; expected (n,) or (n, columns).")
    if shape[0] > max_rows or (len(shape) == 2 and shape[1] > MAX_COLUMNS):
        raise BodyTooLarge(
            f"Received {name} of shape {shape}; expected at most {max_rows} rows and {MAX_COLUMNS} columns. Send several batches."
        )
    begin = at + file.tell()
    end = begin + math.prod(shape) * dtype.itemsize
    if end > len(data):
        _reject(
            name,
            "truncated",
            f"Received {len(data) - begin} bytes of values; expected {end - begin} for shape {shape}.",
        )
    flat = np.frombuffer(data, dtype, math.prod(shape), begin)
    return flat.reshape(shape, order="F" if is_fortran else "C"), end


def _column(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as a column, whose values the library checks; names are whole numbers."""
    if array.ndim == 2 and name not in (*_MATRICES, "labels"):
        _reject(name, "shape", f"Received shape {array.shape}; expected ({len(array)},).")
    if name not in _TEXTS:
        return np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    values = array.astype(np.float64)
    odd = (values != np.floor(values)) | (np.abs(values) > 2**53)
    if odd.any():
        detail = f"Received {values[odd][0]!s}; expected a whole number."
        raise CalibrationInputError.at(f"/{name}/{np.flatnonzero(odd)[0]}", "integer", detail)
    return array.astype(np.int64)


def _reject(name: str, rule: str, detail: str) -> NoReturn:
    raise CalibrationInputError.at(f"/{name}", rule, detail)
