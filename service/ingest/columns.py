"""Form of a posted batch: bytes to columns, before their meaning is checked.

JSON holds columns, NDJSON one record a line under the same names in the singular. The kernel reads columns of plain
numbers as arrays; the result is that of reading everything, to the bit. It rejects what is not plain: numbers that are no lists or
lists of lists, other lengths, other types, lines of different members, escapes in a name, text that is not JSON. Then the
body is read again, and its errors are those of that reading. Other values are passed on unchanged, and `calibrant.Batch` reports which
row is wrong and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow_column import Column, Lists
from calibrant.kernel import json_columns
from calibrant_server.service.http.bodies import ARROW, NDJSON, Body, decoded_limit
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.http.problems import BodyTooLarge, Problem, escaped
from calibrant_server.service.ingest.arrow_stream import read_arrow
from calibrant_server.service.ingest.body_reading import READING_FIELDS
from calibrant_server.service.ingest.parsed_batch import (
    LENIENT,
    RECORD_NAMES,
    RECORDS,
    SINGULAR,
    ParsedBatch,
    check_list,
    from_list,
    from_records,
    head_of,
    object_of,
    reject_unknown,
)
from calibrant_server.service.settings import Settings

# A first line of the batch itself is read by the parser of complete JSON before it is known whether the kernel reads the rest.
MAX_HEAD_BYTES = 4096


def read_document(data: bytes, max_objects: int, max_rows: int) -> Any:
    """Return a JSON document, with its plain columns of numbers as arrays."""
    found = json_columns.read(data)
    document = None if found is None else _document(found, max_objects, max_rows)
    return read_json(data, max_objects) if document is None else document


def _column(member: json_columns.Member) -> Any:
    """Return an array, or lists of several lengths as in an Arrow stream."""
    if member.ends is None:
        return member.column
    null = np.zeros(len(member.ends), np.bool_)
    assert member.column is not None
    offsets = np.concatenate([[0], member.ends])
    return Column(Lists(member.column, offsets, null), null)


def _document(
    found: json_columns.Document, max_objects: int, max_rows: int
) -> dict[str, Any] | None:
    """Return the members by name, in their order; None where the complete document must be read."""
    columns = [member for member in found.members if member.column is not None]
    names = {member.name for member in found.members}
    if not columns or len(names) < len(found.members) or found.n_lists > max_objects:
        return None
    by_name = {member.name: _column(member) for member in columns}
    if any(len(column) > max_rows for column in by_name.values()):
        return None
    others = b",".join(member.text for member in found.members if member.column is None)
    try:
        rest = read_json(b"{" + others + b"}", max_objects - found.n_lists)
    except Problem:
        return None
    if rest.keys() != names - by_name.keys():
        return None
    read = rest | by_name
    return {member.name: read[member.name] for member in found.members}


def read_lines(
    data: bytes, max_objects: int, max_rows: int, head: tuple[str, ...]
) -> ParsedBatch | None:
    """Return the batch of NDJSON whose lines have one form; None where the complete text must be read.

    Parameters
    ----------
    head : fields of the batch itself, in a line before the others
    """
    try:
        found = json_columns.read_lines(data)
        if found is not None:
            return _batch(found, max_objects, max_rows, 1)
        first, _, others = data[:MAX_HEAD_BYTES].partition(b"\n")
        if not others:
            return None
        about = from_records(*read_ndjson(first, max_objects), {}, head)
        is_record = bool(about.lines)
        found = None if is_record else json_columns.read_lines(data[len(first) + 1 :])
        if found is None:
            return None
        n_objects = first.count(b"[") + first.count(b"{")
        batch = _batch(found, max_objects - n_objects, max_rows, 2)
    except (Problem, CalibrationInputError):
        return None
    if batch is None:
        return None
    return replace(
        batch,
        batch_id=about.batch_id,
        options=about.options,
        origin=about.origin,
        reading=about.reading,
    )


def _batch(
    found: json_columns.Lines, max_objects: int, max_rows: int, first_line: int
) -> ParsedBatch | None:
    """Return the columns under their names in the plural, in the order of reading the complete lines."""
    names = [member.name for member in found.members]
    arrays = {member.name: _column(member) for member in found.members if member.column is not None}
    both = any({plural, SINGULAR[plural]} <= set(names) for plural in LENIENT)
    if not arrays or both or len(set(names)) < len(names) or found.n > max_rows:
        return None
    if found.n + found.n_lists > max_objects:
        return None
    lines = list(range(first_line, first_line + found.n))
    others: dict[str, Any] = {}
    if found.rest:
        records = read_json(found.rest, max_objects - found.n_lists + 1)
        others = from_records(records, lines, {}, ()).columns
    columns = {
        RECORD_NAMES[name]: arrays[name] if name in arrays else others[RECORD_NAMES[name]]
        for name in sorted(names)
    }
    return ParsedBatch(columns, lines=lines, options_at=("1", "options"))


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
    max_objects = settings.max_objects
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
    return ParsedBatch(columns, **head_of(document))


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
