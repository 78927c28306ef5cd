"""Offsets of a batch in its source, such as a partition of Kafka: which messages it holds, so that none counts twice."""

from collections.abc import Mapping
from typing import Any

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.name_columns import NAME, NAME_RULE
from calibrant_server.workers.ingest.entries import SourceOffsets

OFFSET_FIELDS = ("source", "offsets")
MAX_OFFSET = 2**53 - 1  # the largest integer that JSON and Lua have exactly


def offsets_of(document: Mapping[str, Any]) -> SourceOffsets | None:
    """Return the source and offsets that a document states, None if neither.

    Raises
    ------
    CalibrationInputError
        One without the other, a source that is no id, or offsets that are not `[from, to)`.
    """
    source, offsets = (document.get(name) for name in OFFSET_FIELDS)
    if source is None and offsets is None:
        return None
    if source is None or offsets is None:
        missing = OFFSET_FIELDS[0] if source is None else OFFSET_FIELDS[1]
        raise _error(missing, "required", "Received one of source and offsets; expected both.")
    if not isinstance(source, str) or not NAME.fullmatch(source):
        detail = f"Received a source that is no id; expected {NAME_RULE}"
        raise _error("source", "id", detail)
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(each) is int for each in offsets)
        and 0 <= offsets[0] < offsets[1] <= MAX_OFFSET
    ):
        detail = (
            f"Received other offsets; expected two integers [from, to) with 0 <= from < to <= {MAX_OFFSET}: "
            "the first message of the batch and the one behind its last."
        )
        raise _error("offsets", "range", detail)
    return SourceOffsets(source, *offsets)


def offsets_of_query(source: str | None, offsets: str | None) -> SourceOffsets | None:
    """Return source and offsets from query parameters such as `source=orders-3&offsets=100,250`; None if neither is there."""
    numbers: Any = offsets
    if offsets is not None:
        parts = offsets.split(",")
        if all(part.isascii() and part.isdigit() and len(part) <= 16 for part in parts):
            numbers = [int(part) for part in parts]
    return offsets_of({"source": source, "offsets": numbers})


def agreed_offsets(
    in_body: SourceOffsets | None, in_query: SourceOffsets | None
) -> SourceOffsets | None:
    """Return what body or query state; both may, if they are equal."""
    if in_body is not None and in_query is not None and in_body != in_query:
        detail = "Received other source and offsets in the query than in the body; expected the same, or one of them."
        raise _error("offsets", "agreement", detail)
    return in_body or in_query


def _error(field: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError([Violation(f"/{field}", rule, detail)])
