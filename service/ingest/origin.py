"""What a batch holds, so that nothing counts twice: messages of a source, such as a partition of Kafka."""

from collections.abc import Mapping
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.input.names import IDENTIFIER, IDENTIFIER_RULE
from calibrant_server.service.ingest.schemas import SourceQuery
from calibrant_server.workers.ingest.entries import SourceOffsets

ORIGIN_FIELDS = ("source", "offsets")
MAX_OFFSET = 2**53 - 1  # the largest integer that JSON and Lua have exactly


def origin_of(document: Mapping[str, Any]) -> SourceOffsets | None:
    """Return the source and offsets that a document states; None if it states neither.

    Raises
    ------
    CalibrationInputError
        One field without the other, a name that is no id, or offsets that are not `[from, to)`.
    """
    source, offsets = (document.get(name) for name in ORIGIN_FIELDS)
    return None if source is None and offsets is None else _messages_of(source, offsets)


def _messages_of(source: Any, offsets: Any) -> SourceOffsets:
    if source is None or offsets is None:
        missing = ORIGIN_FIELDS[0] if source is None else ORIGIN_FIELDS[1]
        raise _error(missing, "required", "Received one of source and offsets; expected both.")
    if not isinstance(source, str) or not IDENTIFIER.fullmatch(source):
        detail = f"Received a source that is no id; expected {IDENTIFIER_RULE}"
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


def origin_of_query(query: SourceQuery) -> SourceOffsets | None:
    """Return what query parameters state, such as `source=orders-3&offsets=100,250`."""
    offsets = query.offsets
    numbers: Any = offsets
    if offsets is not None:
        parts = offsets.split(",")
        if all(part.isascii() and part.isdigit() and len(part) <= 16 for part in parts):
            numbers = [int(part) for part in parts]
    return origin_of({"source": query.source, "offsets": numbers})


def agreed_origin(
    in_body: SourceOffsets | None, in_query: SourceOffsets | None
) -> SourceOffsets | None:
    """Return what body or query state; both may, if they are equal."""
    if in_body is not None and in_query is not None and in_body != in_query:
        detail = "Received other source and offsets in the query than in the body; expected the same, or one of them."
        raise _error("offsets", "agreement", detail)
    return in_body or in_query


def _error(field: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError.at(f"/{field}", rule, detail)
