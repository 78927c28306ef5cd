"""JSON documents and lines whose columns of numbers the kernel reads to arrays; whatever is unusual is read completely.

The result is that of reading everything, to the bit. The kernel rejects what is not plain: numbers that are no lists or
lists of lists, other lengths, other types, lines of different members, escapes in a name, text that is not JSON. Then the
body is read again, and its errors are those of that reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow_column import Column, Lists
from calibrant.kernel import json_columns
from calibrant_server.service.http.errors import Problem
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.ingest.parsed_batch import LENIENT, SINGULAR, ParsedBatch
from calibrant_server.service.ingest.records import RECORD_NAMES, from_records

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
