"""Form of a posted batch: bytes to columns, before their meaning is checked.

JSON holds columns, NDJSON one record a line under the same names in the singular. Columns of plain
numbers become arrays here: in the kernel (`plain_columns.py`), or by way of `array.fromlist`, which is faster than numpy's own
reading and rejects strings and nulls. Other values are passed on unchanged, and `calibrant.Batch` reports which row
is wrong and why.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.arrow_column import Column
from calibrant_server.service.http.bodies import ARROW, NDJSON, Body, decoded_limit
from calibrant_server.service.http.errors import BodyTooLarge, escaped
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.ingest.arrow_stream import read_arrow
from calibrant_server.service.ingest.body_reading import READING_FIELDS, origin_of, reading_of
from calibrant_server.service.ingest.parsed_batch import (
    SINGULAR,
    ParsedBatch,
    batch_id_of,
    check_list,
    has_origin,
    object_of,
    reject_unknown,
)
from calibrant_server.service.ingest.plain_columns import read_document, read_lines
from calibrant_server.service.ingest.records import RECORDS, from_list, from_records
from calibrant_server.service.settings import Settings

COLUMNS = tuple(SINGULAR)
NO_MORE: Mapping[str, str] = {}
# In smaller bodies the calls of the kernel cost more than the numbers.
MIN_KERNEL_BYTES = 4096


def read_columns(
    body: Body,
    settings: Settings,
    more: Mapping[str, str] = NO_MORE,
    head: tuple[str, ...] = ("batch_id",),
) -> ParsedBatch:
    """Return the columns of a predictions body, and of `more`, singular to plural, which a row may leave out.

    `head` names the fields of the batch itself: in the body next to its columns, or in a separate first line.

    Raises
    ------
    Problem
        400 when it is not JSON, 413 when it has too many rows.
    CalibrationInputError
        A field that is unknown, or is not the list that it should be.
    """
    max_objects = 3 * settings.max_rows + 100
    head = (*head, *READING_FIELDS)
    if body.media_type == ARROW:
        return _from_arrow(body, settings)
    is_plain = not more and len(body.data) >= MIN_KERNEL_BYTES
    if body.media_type == NDJSON:
        lines = read_lines(body.data, max_objects, settings.max_rows, head) if is_plain else None
        posted = lines or from_records(*read_ndjson(body.data, max_objects), more, head)
    elif not is_plain:
        posted = _from_document(read_json(body.data, max_objects), more, head)
    else:
        document = read_document(body.data, max_objects, settings.max_rows)
        posted = _from_document(document, more, head)
    longest = max((len(column) for column in _lists(posted.columns)), default=0)
    if longest > settings.max_rows:
        raise BodyTooLarge(
            f"Received {longest} rows; expected at most {settings.max_rows}. Send several batches."
        )
    columns, is_flat = _unflattened(posted.columns)
    has_lists = any(isinstance(columns.get(name), list) for name in ("probabilities", "logits"))
    may_hold_booleans = has_lists and (b"true" in body.data or b"false" in body.data)
    return replace(posted, columns=_arrays(columns, may_hold_booleans), is_flat=is_flat)


def _from_arrow(body: Body, settings: Settings) -> ParsedBatch:
    """Return the columns of an Arrow stream, whose sizes were checked when it was received."""
    columns, batch_id = read_arrow(body.data, decoded_limit(len(body.data), settings))
    return arrow_batch(columns, batch_id)


def arrow_batch(
    columns: Columns, batch_id: str | None, known: tuple[str, ...] = COLUMNS
) -> ParsedBatch:
    """Return the batch of Arrow columns that have the names of JSON."""
    reject_unknown(columns, known)
    scores = columns.get("probabilities")
    is_flat = isinstance(scores, Column) and getattr(scores.values, "ndim", 2) == 1
    if is_flat and "confidences" not in columns:
        columns["confidences"] = columns.pop("probabilities")
    return ParsedBatch(columns, batch_id, is_flat=is_flat)


def _unflattened(columns: Columns) -> tuple[Columns, bool]:
    """Return a flat list of `probabilities` as `confidences`, which it means, and whether it was one."""
    rows = columns.get("probabilities")
    if (
        isinstance(rows, np.ndarray)
        or not rows
        or "confidences" in columns
        or type(rows[0]) not in (int, float)
    ):
        return columns, False
    names = {"probabilities": "confidences"}
    return {names.get(name, name): each for name, each in columns.items()}, True


def posted_columns(columns: Columns, settings: Settings) -> Columns:
    """Return some columns of a document in the same way as `read_columns` for a complete one.

    Raises
    ------
    BodyTooLarge, CalibrationInputError
        As `read_columns`.
    """
    for name, value in columns.items():
        _check_column(name, value)
    longest = max((len(column) for column in _lists(columns)), default=0)
    if longest > settings.max_rows:
        raise BodyTooLarge(
            f"Received {longest} rows; expected at most {settings.max_rows}. Send several batches."
        )
    return _arrays(columns)


def _lists(columns: Columns) -> Iterable[list[Any]]:
    slices = columns.get("slices", {})
    return (each for each in chain(columns.values(), slices.values()) if isinstance(each, list))


def _from_document(document: Any, more: Mapping[str, str], head: tuple[str, ...]) -> ParsedBatch:
    document = object_of(document)
    if RECORDS in document:
        return from_list(document, more, head)
    known = (*COLUMNS, *more.values())
    reject_unknown(document, (*known, *head))
    columns = {name: value for name, value in document.items() if name in known}
    columns = {name: value for name, value in columns.items() if value is not None}
    for name, value in columns.items():
        _check_column(name, value)
    return ParsedBatch(
        columns,
        batch_id_of(document),
        options=document.get("options"),
        annotations=document.get("annotations"),
        origin=origin_of(document) if has_origin(document) else None,
        reading=reading_of(document),
    )


def _check_column(name: str, value: Any) -> None:
    if name != "slices":
        return check_list(f"/{name}", value)
    if not isinstance(value, dict):
        raise CalibrationInputError(
            [
                Violation(
                    "/slices",
                    "object",
                    "Received another type for slices; expected an object with one list per slice name.",
                )
            ]
        )
    for key, column in value.items():
        check_list(f"/slices/{escaped(key)}", column)


def _arrays(columns: Columns, may_hold_booleans: bool = True) -> Columns:
    def matrix(rows: list[Any]) -> Any:
        return _matrix(rows, may_hold_booleans)

    reading: dict[str, Callable[[Any], Any]] = {
        "probabilities": matrix,
        "logits": matrix,
        "confidences": _vector,
        "weights": _vector,
        "label_counts": _counts,
    }
    return {
        name: reading.get(name, _as_it_is)(value) if isinstance(value, list) else value
        for name, value in columns.items()
    }


def _as_it_is(column: Any) -> Any:
    return column


def _matrix(rows: list[Any], may_hold_booleans: bool) -> Any:
    """Return float64 (n, width) if every row is a list of numbers of one length, else the rows."""
    if set(map(type, rows)) != {list}:
        return rows
    widths = set(map(len, rows))
    if len(widths) != 1 or 0 in widths:
        return rows
    flat = array("d")
    try:
        for row in rows:
            flat.fromlist(row)
    except (TypeError, OverflowError):
        return rows
    matrix = np.frombuffer(flat).reshape(len(rows), -1)
    return rows if may_hold_booleans and _holds_booleans(matrix, rows) else matrix


def _holds_booleans(matrix: np.ndarray, rows: list[Any]) -> bool:
    """Return whether a 0 or 1 was written as false or true."""
    suspects = np.flatnonzero(((matrix == 0.0) | (matrix == 1.0)).any(axis=1))
    return any(bool in map(type, rows[i]) for i in suspects)


def _vector(values: list[Any]) -> Any:
    """Return float64 (n,) if every value is a number, else the values."""
    if not set(map(type, values)) <= {int, float} or not values:
        return values
    return np.array(values, dtype=np.float64)


def _counts(rows: list[Any]) -> Any:
    """Return int64 (n, width) if every row is a list of whole numbers of one length, else the rows."""
    if set(map(type, rows)) != {list} or len(set(map(len, rows))) != 1:
        return rows
    if set(map(type, chain.from_iterable(rows))) != {int}:
        return rows
    flat = _int64(list(chain.from_iterable(rows)))
    return flat.reshape(len(rows), -1) if isinstance(flat, np.ndarray) else rows


def _int64(values: list[Any]) -> Any:
    try:
        return np.frombuffer(array("q", values), dtype=np.int64)
    except OverflowError:
        return values
