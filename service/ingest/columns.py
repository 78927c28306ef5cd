"""Form of a posted batch: bytes to columns, before their meaning is checked.

JSON holds columns, NDJSON one record a line under the same names in the singular. Columns of plain
numbers become arrays here: those of a JSON document in the kernel (`plain_columns.py`), others by way of `array.fromlist`, which is
faster than numpy's own reading and rejects strings and nulls. Other values are passed on unchanged, and `calibrant.Batch` reports which row
is wrong and why.
"""

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.arrow import Column, Lists
from calibrant.input.value_checks import MAX_VIOLATIONS
from calibrant_server.service.http.bodies import ARROW, NDJSON, Body, decoded_limit
from calibrant_server.service.http.errors import BodyTooLarge, escaped
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.ingest.arrow_stream import read_arrow
from calibrant_server.service.ingest.offsets import OFFSET_FIELDS, offsets_of
from calibrant_server.service.ingest.plain_columns import read_document
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.entries import Places, SourceOffsets

PLURAL = {
    "probability": "probabilities",
    "logit": "logits",
    "confidence": "confidences",
    "label": "labels",
    "label_count": "label_counts",
    "id": "ids",
    "unit": "units",
    "case": "cases",
    "event_time": "event_times",
    "slice": "slices",
    "weight": "weights",
}
SINGULAR = {plural: singular for singular, plural in PLURAL.items()}
# The value of a record may be a list; then the plural name is accepted, too.
LENIENT = {name: name for name in ("probabilities", "logits", "labels", "label_counts", "slices")}
RECORD_NAMES = PLURAL | LENIENT
COLUMNS = tuple(SINGULAR)
NO_MORE: Mapping[str, str] = {}
IN_A_LINE = SINGULAR | {"raters": "rater"}
RECORDS = "predictions"
SOME, MAX_NAME = 10, 60  # names that an error quotes, and characters of each
ROW_OF = re.compile(r"/(\w+)(/[^/0-9][^/]*)?/(\d+)(/.*)?")


@dataclass(frozen=True)
class ParsedBatch:
    """The columns of a posted batch, its id and options if present, and the places of its rows.

    Attributes
    ----------
    lines : line of each row in NDJSON, index of each record in JSON; empty for columns
    under : field that holds the records in JSON; empty for NDJSON and columns
    names : name of each column in a record
    is_flat : whether `confidences` were sent as a flat list of `probabilities`
    """

    columns: dict[str, Any]
    batch_id: str | None = None
    lines: list[int] = field(default_factory=list)
    options: object = None
    offsets: SourceOffsets | None = None
    under: str = ""
    names: Mapping[str, str] = field(default_factory=lambda: IN_A_LINE)
    is_flat: bool = False

    def places(self, accepted: Iterable[int]) -> Places | None:
        """Return the numbers under which the accepted rows were sent; None if they are their own numbers."""
        rows = list(accepted)
        if self.lines:
            return Places([self.lines[row] for row in rows], True, self.under)
        return None if rows == list(range(len(rows))) else Places(rows, False)

    def rows_but(self, accepted: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows that are not among `accepted`, each as it was sent."""
        columns = {
            name: column
            for name, column in self.columns.items()
            if name != "slices" and column is not None
        }
        slices = self.columns.get("slices")
        columns |= slices if isinstance(slices, dict) else {}
        n_rows = max((len(each) for each in columns.values()), default=0)
        if len(accepted) == n_rows:
            return []
        left = set(range(n_rows)).difference(accepted)
        columns = {name: _indexed(column) for name, column in columns.items()}
        return [
            {name: column[row] for name, column in columns.items() if row < len(column)}
            for row in sorted(left)
        ]

    def place(self, violation: Violation) -> Violation:
        """Return the violation with the client's own position: the line number if lines were sent."""
        if self.is_flat and violation.pointer.startswith("/confidences"):
            pointer = "/probabilities" + violation.pointer.removeprefix("/confidences")
            violation = replace(violation, pointer=pointer)
        found = ROW_OF.fullmatch(violation.pointer) if self.lines else None
        if not found or found[1] not in IN_A_LINE or int(found[3]) >= len(self.lines):
            return violation
        column, key, row, rest = found.groups()
        name = self.names.get(column, IN_A_LINE[column])
        prefix = f"/{self.under}" if self.under else ""
        pointer = f"{prefix}/{self.lines[int(row)]}/{name}{key or ''}{rest or ''}"
        return replace(violation, pointer=pointer)


def _indexed(column: Any) -> Any:
    """Return a column with one value per row, None where an Arrow column has none."""
    if not isinstance(column, Column):
        return column
    found = column.values
    values = found.as_lists() if isinstance(found, Lists) else found.tolist()
    return [
        None if null else value for null, value in zip(column.null.tolist(), values, strict=True)
    ]


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
    if body.media_type == ARROW:
        return _from_arrow(body, settings)
    if body.media_type == NDJSON:
        posted = _from_records(*read_ndjson(body.data, max_objects), more, head)
    elif more:
        posted = _from_document(read_json(body.data, max_objects), more, head)
    else:
        document = read_document(body.data, max_objects, settings.max_rows)
        posted = _from_document(document, more, head)
    longest = max((len(column) for column in _lists(posted.columns)), default=0)
    if longest > settings.max_rows:
        raise BodyTooLarge(f"The batch has {longest} rows; the limit is {settings.max_rows}.")
    columns, is_flat = _unflattened(posted.columns)
    may_hold_booleans = b"true" in body.data or b"false" in body.data
    return replace(posted, columns=_arrays(columns, may_hold_booleans), is_flat=is_flat)


def _from_arrow(body: Body, settings: Settings) -> ParsedBatch:
    """Return the columns of an Arrow stream, whose sizes were checked when it was received."""
    columns, batch_id = read_arrow(body.data, decoded_limit(len(body.data), settings))
    refuse_unknown(columns, COLUMNS)
    scores = columns.get("probabilities")
    is_flat = isinstance(scores, Column) and getattr(scores.values, "ndim", 2) == 1
    if is_flat and "confidences" not in columns:
        columns["confidences"] = columns.pop("probabilities")
    return ParsedBatch(columns, batch_id, is_flat=is_flat)


def _unflattened(columns: dict[str, Any]) -> tuple[dict[str, Any], bool]:
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


def posted_columns(columns: dict[str, Any], settings: Settings) -> dict[str, Any]:
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
        raise BodyTooLarge(f"The batch has {longest} rows; the limit is {settings.max_rows}.")
    return _arrays(columns)


def _lists(columns: dict[str, Any]) -> Iterable[list[Any]]:
    slices = columns.get("slices", {})
    return (each for each in chain(columns.values(), slices.values()) if isinstance(each, list))


def refuse_unknown(names: Iterable[str], known: Collection[str], prefix: str = "") -> None:
    """Raise for each name that is not among the known ones, which the message lists."""
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    listed = ", ".join(sorted(known))
    violations = [
        Violation(
            f"{prefix}/{escaped(quoted(name))}",
            "unknown_field",
            f"Received field {quoted(name)!r}; expected one of {listed}.",
        )
        for name in unknown[:MAX_VIOLATIONS]
    ]
    raise CalibrationInputError(violations, len(unknown))


def quoted(name: str) -> str:
    """Return a name of the client, cut to what an error quotes."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


def some_of(names: Sequence[str]) -> str:
    """Return the first names with commas between, and how many more there are."""
    some = ", ".join(map(quoted, names[:SOME]))
    return some if len(names) <= SOME else f"{some} and {len(names) - SOME} more"


def object_of(document: Any) -> dict[str, Any]:
    """Return the document if it is an object."""
    if not isinstance(document, dict):
        raise CalibrationInputError(
            [Violation("", "object", "Received a body of another type; expected a JSON object.")]
        )
    return document


def batch_id_of(document: dict[str, Any]) -> str | None:
    """Return the batch id in a document, or None."""
    batch_id = document.get("batch_id")
    if batch_id is None or isinstance(batch_id, str):
        return batch_id
    raise CalibrationInputError(
        [
            Violation(
                "/batch_id", "string", "Received a batch_id of another type; expected a string."
            )
        ]
    )


def _has_offsets(document: dict[str, Any]) -> bool:
    return not document.keys().isdisjoint(OFFSET_FIELDS)


def _from_document(document: Any, more: Mapping[str, str], head: tuple[str, ...]) -> ParsedBatch:
    document = object_of(document)
    if RECORDS in document:
        return _from_list(document, more, head)
    known = (*COLUMNS, *more.values())
    refuse_unknown(document, (*known, *head))
    columns = {name: value for name, value in document.items() if name in known}
    columns = {name: value for name, value in columns.items() if value is not None}
    for name, value in columns.items():
        _check_column(name, value)
    return ParsedBatch(
        columns,
        batch_id_of(document),
        options=document.get("options"),
        offsets=offsets_of(document) if _has_offsets(document) else None,
    )


def _from_list(
    document: dict[str, Any], more: Mapping[str, str], head: tuple[str, ...]
) -> ParsedBatch:
    """Return the columns of records in a list."""
    refuse_unknown(document, (RECORDS, *head))
    records = document[RECORDS]
    _check_list(f"/{RECORDS}", records)
    others = [index for index, record in enumerate(records) if not isinstance(record, dict)]
    if others:
        detail = "Received another type; expected an object."
        error = _at_all(others, "", "object", detail)
        raise error.each(lambda each: replace(each, pointer=f"/{RECORDS}{each.pointer}"))
    try:
        found = _from_records(records, list(range(len(records))), more, ())
    except CalibrationInputError as error:
        raise error.each(
            lambda found: replace(found, pointer=f"/{RECORDS}{found.pointer}")
        ) from error
    spelled = set().union(*set(map(tuple, records)))
    return replace(
        found,
        batch_id=batch_id_of(document),
        options=document.get("options"),
        offsets=offsets_of(document) if _has_offsets(document) else None,
        under=RECORDS,
        names={plural: plural for plural in LENIENT if plural in spelled},
    )


def _check_column(name: str, value: Any) -> None:
    if name != "slices":
        return _check_list(f"/{name}", value)
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
        _check_list(f"/slices/{escaped(key)}", column)


def _check_list(pointer: str, value: Any) -> None:
    if not isinstance(value, list | np.ndarray | Column):
        detail = f"Received another type for {pointer[1:]}; expected a list with one entry per prediction."
        raise CalibrationInputError([Violation(pointer, "list", detail)])


def _from_records(
    records: list[dict[str, Any]], lines: list[int], more: Mapping[str, str], head: tuple[str, ...]
) -> ParsedBatch:
    batch_id = options = offsets = None
    if records and records[0] and records[0].keys() <= set(head):
        batch_id, options = batch_id_of(records[0]), records[0].get("options")
        offsets = offsets_of(records[0]) if _has_offsets(records[0]) else None
        records, lines = records[1:], lines[1:]
    spelled = set().union(*set(map(tuple, records)))
    if not spelled <= RECORD_NAMES.keys() | more.keys():
        for record, line in zip(records, lines, strict=True):
            if not record.keys() <= RECORD_NAMES.keys() | more.keys():
                refuse_unknown(record, (*RECORD_NAMES, *more), f"/{line}")
    _refuse_two_spellings(spelled, records, lines)
    columns: dict[str, Any] = {}
    for name in sorted(spelled):
        if name in more:
            columns[more[name]] = [record.get(name) for record in records]
            continue
        columns[RECORD_NAMES[name]] = _column(RECORD_NAMES[name], records, lines)
    if "slices" in columns:
        columns["slices"] = _by_slice(columns["slices"], lines)
    return ParsedBatch(columns, batch_id, lines, options, offsets)


def _refuse_two_spellings(
    spelled: set[str], records: list[dict[str, Any]], lines: list[int]
) -> None:
    for plural in LENIENT:
        both = {plural, SINGULAR[plural]}
        if not both <= spelled:
            continue
        for record, line in zip(records, lines, strict=True):
            if both <= record.keys():
                detail = f"Received both {SINGULAR[plural]!r} and {plural!r}; expected one of them."
                raise CalibrationInputError([Violation(f"/{line}/{plural}", "one_of", detail)])


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


def _arrays(columns: dict[str, Any], may_hold_booleans: bool = True) -> dict[str, Any]:
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
