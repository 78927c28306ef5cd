"""Form of a posted batch: bytes to columns, before their meaning is checked.

JSON holds columns, NDJSON one record a line under the same names in the singular. The kernel reads columns of plain
numbers as arrays (`plain_columns.py`). Other values are passed on unchanged, and `calibrant.Batch` reports which row
is wrong and why.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError
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
    _bound_rows(posted.columns, settings)
    return posted


def _bound_rows(columns: Columns, settings: Settings) -> None:
    longest = max((len(column) for column in _lists(columns)), default=0)
    if longest > settings.max_rows:
        raise BodyTooLarge(
            f"Received {longest} rows; expected at most {settings.max_rows}. Send several batches."
        )


def _from_arrow(body: Body, settings: Settings) -> ParsedBatch:
    """Return the columns of an Arrow stream, whose sizes were checked when it was received."""
    columns, batch_id = read_arrow(body.data, decoded_limit(len(body.data), settings))
    return arrow_batch(columns, batch_id)


def arrow_batch(
    columns: Columns, batch_id: str | None, known: tuple[str, ...] = COLUMNS
) -> ParsedBatch:
    """Return the batch of Arrow columns that have the names of JSON."""
    reject_unknown(columns, known)
    return ParsedBatch(columns, batch_id)


def posted_columns(columns: Columns, settings: Settings) -> Columns:
    """Return some columns of a document in the same way as `read_columns` for a complete one.

    Raises
    ------
    BodyTooLarge, CalibrationInputError
        As `read_columns`.
    """
    for name, value in columns.items():
        _check_column(name, value)
    _bound_rows(columns, settings)
    return columns


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
        detail = (
            "Received another type for slices; expected an object with one list per slice name."
        )
        raise CalibrationInputError.at("/slices", "object", detail)
    for key, column in value.items():
        check_list(f"/slices/{escaped(key)}", column)
