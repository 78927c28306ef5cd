"""Columns of a posted batch, the places of its rows in the body, and the checks of fields that all forms of a body share."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError, Violation, nearest
from calibrant.input.arrow_column import Column
from calibrant.input.value_checks import MAX_VIOLATIONS
from calibrant_server.service.http.problems import escaped
from calibrant_server.service.ingest.body_reading import (
    PLAIN,
    BodyReading,
    origin_of,
    reading_of,
)
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
# Have one name in columns and records, and no column of a table of cells.
SHARES = {name: name for name in ("label_shares", "n_ratings")}
SINGULAR = {plural: singular for singular, plural in PLURAL.items()} | SHARES
# The value of a record may be a list; then the plural name is accepted, too.
LENIENT = {name: name for name in ("probabilities", "logits", "labels", "label_counts", "slices")}
IN_A_LINE = SINGULAR | {"raters": "rater"}
SOME, MAX_NAME = 10, 60  # names that an error quotes, and characters of each
# Columns of numbers, in which 1 and 1.0 are equal.
NUMBERS = frozenset(
    ("probabilities", "logits", "confidences", "weights", "label_shares", "n_ratings")
)
MAX_EXACT = 2**1023  # larger integers are no float64
# Columns of multi-label rows with one value per label.
OF_LABELS = ("probabilities", "logits", "labels")
ROW_OF = re.compile(r"/(\w+)(/[^/0-9][^/]*)?/(\d+)(/.*)?")

# Fields of earlier versions, and what to send instead.
REMOVED_FIELDS = {"job": "source and offsets, or batch_id"}


@dataclass(frozen=True, eq=False)
class LabelCells:
    """Places of the predictions of multi-label rows, each of which is one prediction per label.

    Attributes
    ----------
    rows, labels : int64 (n,), row and label of each prediction
    n_rows : that were sent
    names : of the labels
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    n_rows: int
    names: Sequence[str]

    def place(self, violation: Violation) -> Violation:
        """Return the violation at the place in the row, with the name of the label."""
        found = ROW_OF.fullmatch(violation.pointer)
        if not found or int(found[3]) >= len(self.rows):
            return violation
        row, label = (int(each[int(found[3])]) for each in (self.rows, self.labels))
        if found[1] not in OF_LABELS:
            return replace(violation, pointer=f"/{found[1]}{found[2] or ''}/{row}{found[4] or ''}")
        detail = f"Label {self.names[label]!r:.60}: {violation.detail}"
        return replace(violation, pointer=f"/{found[1]}/{row}/{label}", detail=detail)


@dataclass(frozen=True)
class ParsedBatch:
    """The columns of a posted batch, its id and options if present, and the places of its rows.

    Attributes
    ----------
    lines : line of each row in NDJSON, index of each record in JSON; empty for columns
    under : field that holds the records in JSON; empty for NDJSON and columns
    names : name of each column in a record
    options_at : place of the options in the body, or their parameter in the query
    reading : how the values are read, as the body states it
    has_named_raters : whether every rating has the name of its rater
    annotations : long table of ratings, as sent
    cells : places of the predictions of multi-label rows; None for other rows
    class_names : of the columns of scores of a table
    """

    columns: Columns
    batch_id: str | None = None
    lines: list[int] = field(default_factory=list)
    options: object = None
    origin: SourceOffsets | None = None
    under: str = ""
    names: Mapping[str, str] = field(default_factory=lambda: IN_A_LINE)
    options_at: tuple[str, ...] = ("options",)
    reading: BodyReading = PLAIN
    has_named_raters: bool = False
    annotations: object = None
    cells: LabelCells | None = None
    class_names: Sequence[str] | None = None

    def places(self, accepted: Iterable[int]) -> Places | None:
        """Return the numbers under which the accepted rows were sent; None if they are their own numbers."""
        rows = list(accepted)
        if self.cells is not None:
            rows = self.cells.rows[rows].tolist()
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
        columns = {name: indexed(column) for name, column in columns.items()}
        return [
            {name: _sent(name, each[row]) for name, each in columns.items() if row < len(each)}
            for row in sorted(left)
        ]

    def place(self, violation: Violation) -> Violation:
        """Return the violation with the client's own position: the line number if lines were sent."""
        if self.cells is not None:
            violation = self.cells.place(violation)
        found = ROW_OF.fullmatch(violation.pointer) if self.lines else None
        if not found or found[1] not in IN_A_LINE or int(found[3]) >= len(self.lines):
            return violation
        column, key, row, rest = found.groups()
        name = self.names.get(column, IN_A_LINE[column])
        prefix = f"/{self.under}" if self.under else ""
        pointer = f"{prefix}/{self.lines[int(row)]}/{name}{key or ''}{rest or ''}"
        return replace(violation, pointer=pointer)


def _sent(name: str, value: Any) -> Any:
    """Return a value of a row, whole numbers of a column of numbers as floats, as a reader of numbers alone returns them."""
    if isinstance(value, list):
        return [_sent(name, each) for each in value]
    is_whole = type(value) is int and name in NUMBERS and abs(value) < MAX_EXACT
    return float(value) if is_whole else value


def indexed(column: Any) -> Any:
    """Return a column with one value per row, None where an Arrow column has none."""
    return column.as_list() if isinstance(column, Column) else column


def reject_unknown(names: Iterable[str], known: Collection[str], prefix: str = "") -> None:
    """Raise for each name that is not among the known ones, which the message lists."""
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    violations = [_unknown(name, prefix, known) for name in unknown[:MAX_VIOLATIONS]]
    raise CalibrationInputError(violations, len(unknown))


def _unknown(name: str, prefix: str, known: Collection[str]) -> Violation:
    place = f"{prefix}/{escaped(quoted(name))}"
    if name in REMOVED_FIELDS:
        detail = f"Received field {name}, which was removed; use {REMOVED_FIELDS[name]}."
        return Violation(place, "removed_field", detail)
    listed, hint = ", ".join(sorted(known)), nearest(name, known)
    detail = f"Received field {quoted(name)!r}; expected one of {listed}.{hint}"
    return Violation(place, "unknown_field", detail)


def quoted(name: str) -> str:
    """Return a name of the client, cut to what an error quotes."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


def some_of(names: Sequence[str]) -> str:
    """Return the first names separated by commas, and how many more there are."""
    some = ", ".join(map(quoted, names[:SOME]))
    return some if len(names) <= SOME else f"{some} and {len(names) - SOME} more"


def object_of(document: Any) -> dict[str, Any]:
    """Return the document if it is an object."""
    if not isinstance(document, dict):
        raise CalibrationInputError.at(
            "", "object", "Received a body of another type; expected a JSON object."
        )
    return document


def batch_id_of(document: dict[str, Any]) -> str | None:
    """Return the batch id in a document, or None."""
    batch_id = document.get("batch_id")
    if batch_id is None or isinstance(batch_id, str):
        return batch_id
    raise CalibrationInputError.at(
        "/batch_id", "string", "Received a batch_id of another type; expected a string."
    )


def head_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return what a document states of the batch as a whole, as fields of `ParsedBatch`."""
    return {
        "batch_id": batch_id_of(document),
        "options": document.get("options"),
        "annotations": document.get("annotations"),
        "origin": origin_of(document),
        "reading": reading_of(document),
    }


def check_list(pointer: str, value: Any) -> None:
    if not isinstance(value, list | np.ndarray | Column):
        detail = f"Received another type for {pointer[1:]}; expected a list with one entry per prediction."
        raise CalibrationInputError.at(pointer, "list", detail)


RECORD_NAMES = PLURAL | LENIENT | SHARES
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
        **head_of(document),
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
    head_fields: dict[str, Any] = {}
    if records and records[0] and records[0].keys() <= set(head):
        head_fields = head_of(records[0])
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
    return ParsedBatch(columns, lines=lines, options_at=("1", "options"), **head_fields)


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
