"""Records of a posted batch to columns: one object per prediction, as lines of NDJSON or as a list in JSON."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.value_checks import MAX_VIOLATIONS
from calibrant_server.service.http.errors import escaped
from calibrant_server.service.ingest.body_reading import PLAIN, origin_of, reading_of
from calibrant_server.service.ingest.parsed_batch import (
    LENIENT,
    PLURAL,
    SINGULAR,
    ParsedBatch,
    batch_id_of,
    check_list,
    has_origin,
    quoted,
    reject_unknown,
    some_of,
)

RECORD_NAMES = PLURAL | LENIENT
RECORDS = "predictions"


def from_list(
    document: dict[str, Any], more: Mapping[str, str], head: tuple[str, ...]
) -> ParsedBatch:
    """Return the columns of records in a list."""
    _reject_columns(document, head)
    reject_unknown(document, (RECORDS, *head))
    records = document[RECORDS]
    check_list(f"/{RECORDS}", records)
    others = [index for index, record in enumerate(records) if not isinstance(record, dict)]
    if others:
        detail = "Received another type; expected an object."
        error = _at_all(others, "", "object", detail)
        raise error.each(lambda each: replace(each, pointer=f"/{RECORDS}{each.pointer}"))
    try:
        found = from_records(records, list(range(len(records))), more, ())
    except CalibrationInputError as error:
        raise error.each(
            lambda found: replace(found, pointer=f"/{RECORDS}{found.pointer}")
        ) from error
    spelled = set().union(*set(map(tuple, records)))
    return replace(
        found,
        batch_id=batch_id_of(document),
        options=document.get("options"),
        annotations=document.get("annotations"),
        origin=origin_of(document) if has_origin(document) else None,
        reading=reading_of(document),
        under=RECORDS,
        options_at=("options",),
        names={plural: plural for plural in LENIENT if plural in spelled},
    )


def _reject_columns(document: dict[str, Any], head: tuple[str, ...]) -> None:
    """Reject columns next to records: the two forms of a body are not mixed."""
    others = [name for name in document if name not in (RECORDS, *head)]
    if others:
        detail = (
            f"Received {quoted(others[0])!r} next to {RECORDS!r}, which is a list of records. Put its values into the records, as "
            "label, id or unit; or send columns alone: probabilities, labels, ids, units."
        )
        raise CalibrationInputError.at(f"/{escaped(quoted(others[0]))}", "unknown_field", detail)


def from_records(
    records: list[dict[str, Any]], lines: list[int], more: Mapping[str, str], head: tuple[str, ...]
) -> ParsedBatch:
    batch_id = options = origin = None
    reading = PLAIN
    if records and records[0] and records[0].keys() <= set(head):
        batch_id, options = batch_id_of(records[0]), records[0].get("options")
        origin = origin_of(records[0]) if has_origin(records[0]) else None
        reading = reading_of(records[0])
        records, lines = records[1:], lines[1:]
    spelled = set().union(*set(map(tuple, records)))
    if not spelled <= RECORD_NAMES.keys() | more.keys():
        for record, line in zip(records, lines, strict=True):
            if not record.keys() <= RECORD_NAMES.keys() | more.keys():
                reject_unknown(record, (*RECORD_NAMES, *more), f"/{line}")
    _reject_two_spellings(spelled, records, lines)
    columns: Columns = {}
    for name in sorted(spelled):
        if name in more:
            columns[more[name]] = [record.get(name) for record in records]
            continue
        columns[RECORD_NAMES[name]] = _column(RECORD_NAMES[name], records, lines)
    if "slices" in columns:
        columns["slices"] = _by_slice(columns["slices"], lines)
    return ParsedBatch(
        columns, batch_id, lines, options, origin, options_at=("1", "options"), reading=reading
    )


def _reject_two_spellings(
    spelled: set[str], records: list[dict[str, Any]], lines: list[int]
) -> None:
    for plural in LENIENT:
        both = {plural, SINGULAR[plural]}
        if not both <= spelled:
            continue
        for record, line in zip(records, lines, strict=True):
            if both <= record.keys():
                detail = f"Received both {SINGULAR[plural]!r} and {plural!r}; expected one of them."
                raise CalibrationInputError.at(f"/{line}/{plural}", "one_of", detail)


def _column(plural: str, records: list[dict[str, Any]], lines: list[int]) -> list[Any]:
    """Return one value per record; only a label may be absent, if it is not known yet."""
    singular = SINGULAR[plural]
    column = [record.get(singular, record.get(plural)) for record in records]
    if plural in ("labels", "label_counts"):
        return column
    missing = [line for line, value in zip(lines, column, strict=True) if value is None]
    if missing:
        detail = f"Received no {singular}; expected one, as other records have."
        raise _at_all(missing, f"/{singular}", "missing", detail)
    return column


def _at_all(lines: list[int], field: str, rule: str, detail: str) -> CalibrationInputError:
    """Return the error of one rule at many lines, of which the first are listed."""
    listed = [Violation(f"/{line}{field}", rule, detail) for line in lines[:MAX_VIOLATIONS]]
    return CalibrationInputError(listed, len(lines))


def _by_slice(column: list[Any], lines: list[int]) -> dict[str, list[Any]]:
    """Turn one object per record into one list per slice name."""
    names = sorted(set(chain.from_iterable(each for each in column if isinstance(each, dict))))
    other = [
        line
        for line, each in zip(lines, column, strict=True)
        if not isinstance(each, dict) or len(each) != len(names)
    ]
    if other:
        detail = (
            f"Received other slices; expected values of {some_of(names)}, as other records have."
        )
        raise _at_all(other, "/slice", "slices", detail)
    return {name: [each[name] for each in column] for name in names}
