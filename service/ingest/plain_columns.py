"""JSON documents whose columns of numbers the kernel reads to arrays; whatever is unusual is read as a complete document.

The result is that of reading the complete document, to the bit. The kernel rejects what is not plain: numbers that are
no lists or lists of lists, other lengths, other types, escapes in a name, text that is not JSON. Then the document is read
again, and its errors are those of that reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.input.arrow_column import Column, Lists
from calibrant.kernel import json_columns
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.problem import Problem


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
    return Column(Lists(member.column, offsets, null), null, null)


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
