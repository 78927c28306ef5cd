"""Tables with one number or text per cell: the role of each column by its name, or as the request names it.

`p0, p1, …, label, unit` are columns of probabilities, the label and the unit of each row. The request gives other names
their role: `columns=cat:probability,dog:probability,diagnosis:label`. Then labels may also be the names of these columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.cell_texts import BLANK, MISSING_TEXTS, OFTEN_MISSING, number_of, value_of
from calibrant.input.class_texts import (
    class_index,
    class_places,
    has_numbers,
    names_of_numbers,
    numbers_of,
)
from calibrant.input.value_checks import MAX_VIOLATIONS
from calibrant_server.service.http.problems import escaped
from calibrant_server.service.ingest.parsed_batch import PLURAL, ParsedBatch, quoted, some_of

RATING, IGNORE = "rating", "ignore"
SCORES = ("probability", "logit")
ROLES = (*PLURAL, RATING, IGNORE)
_NUMBERED = re.compile(r"(p|prob|probability|logit|label_count)_?(\d{1,5})")
_RATER = re.compile(r"(?:rater|reader)_[A-Za-z0-9._:@-]+")
_SLICE = re.compile(r"slice[:_](.+)")
_PLAIN = {name: name for name in PLURAL if name not in (*SCORES, "label_count", "slice")}
_OF_PREFIX = {"p": "probability", "prob": "probability", "probability": "probability"}


@dataclass(frozen=True)
class _Columns:
    """Names of columns by role, in the order of the table; `rest` maps a role with one column to it.

    `classes` are the classes that labels may name, with their index; `are_names`: labels are never indices.
    """

    scores: list[str]
    score_role: str
    counts: list[str]
    ratings: list[str]
    slices: dict[str, str]
    rest: dict[str, str]
    classes: dict[str, int]
    are_names: bool

    @property
    def n_classes(self) -> int | None:
        """Number of classes, of which one column has the second of two; None without scores."""
        n = len(self.scores) or int("confidence" in self.rest)
        return max(n, 2) if n else None


def from_flat(
    columns: Mapping[str, Sequence[Any]], written: str | None, lines: list[int]
) -> ParsedBatch:
    """Return the batch of a table.

    Parameters
    ----------
    columns : one value per row: texts of a CSV file, or numbers and texts of Arrow; None and a blank text are missing
    written : roles in the request: `name:role` separated by commas
    lines : line of each row for errors; empty for tables without lines

    Raises
    ------
    CalibrationInputError
        A column without a role, two of a role that has one, a value that is no number.
    """
    roles = _roles(columns, written)
    found: dict[str, Any] = {}
    place = _Places(lines)
    if roles.scores:
        parts = [
            _numbers(name, columns[name], PLURAL[roles.score_role], place) for name in roles.scores
        ]
        found[PLURAL[roles.score_role]] = np.stack(parts, axis=1)
    for role, name in roles.rest.items():
        column = columns[name]
        if role in ("confidence", "weight"):
            found[PLURAL[role]] = _numbers(name, column, PLURAL[role], place)
        elif role == "label":
            found["labels"] = _labels(name, column, roles, place)
        else:
            found[PLURAL[role]] = _names(name, column, PLURAL[role], place)
    if roles.counts:
        parts = [_numbers(name, columns[name], "label_counts", place) for name in roles.counts]
        found["label_counts"] = [[_whole(each) for each in row] for row in zip(*(part.tolist() for part in parts), strict=True)]  # fmt: skip
    if roles.ratings:
        found |= _ratings(columns, roles, place)
    if roles.slices:
        found["slices"] = {key: _names(name, columns[name], f"slices/{escaped(key)}", place) for key, name in roles.slices.items()}  # fmt: skip
    names = list(roles.classes) if len(roles.classes) == roles.n_classes else None
    return ParsedBatch(found, lines=lines, class_names=names)


class _Places:
    """Pointers of cells: by line where there are lines, else by column and row; and which cells have no value."""

    def __init__(self, lines: list[int]) -> None:
        self.lines = lines
        # A table without lines has nulls of its own.
        self.missing = MISSING_TEXTS if lines else BLANK

    def is_missing(self, value: Any, declared: Collection[str] = ()) -> bool:
        if isinstance(value, str):
            return value_of(value, self.missing, declared) is None
        return value is None or value != value

    def reject(self, name: str, plural: str, rows: Iterable[int], rule: str, detail: str) -> None:
        rows = list(rows)
        if not rows:
            return
        listed = [
            Violation(f"/{self.lines[row]}/{escaped(name)}" if self.lines else f"/{plural}/{row}", rule, detail)
            for row in rows[:MAX_VIOLATIONS]
        ]  # fmt: skip
        raise CalibrationInputError(listed, len(rows))


def _roles(columns: Mapping[str, Any], written: str | None) -> _Columns:
    given = _given(columns, written)
    by_role: dict[str, list[tuple[int, str]]] = {}
    slices: dict[str, str] = {}
    unknown = []
    for place, name in enumerate(columns):
        role, order = given.get(name) or _usual(name)
        if role is None:
            unknown.append(name)
        elif role == "slice":
            key = _SLICE.fullmatch(name)
            slices[key[1] if key else name] = name
        elif role != IGNORE:
            by_role.setdefault(role, []).append((place if order is None else order, name))
    if unknown:
        raise _unknown(unknown)
    numbered = {role: sorted(found) for role, found in by_role.items()}
    names = {role: [name for _, name in found] for role, found in numbered.items()}
    single = {
        role: found[0]
        for role, found in names.items()
        if role not in (*SCORES, "label_count", RATING)
    }
    _reject_two(names)
    score_role = "logit" if "logit" in names else "probability"
    scores = names.get(score_role, [])
    classes, are_names = _classes(scores, given)
    _reject_other_numbers(scores, names.get("label_count", []), given)
    if score_role == "probability" and len(scores) == 1:
        single["confidence"], scores = scores[0], []
    return _Columns(
        scores, score_role, names.get("label_count", []), names.get(RATING, []), slices, single,
        classes, are_names,
    )  # fmt: skip


def _classes(scores: list[str], given: Mapping[str, Any]) -> tuple[dict[str, int], bool]:
    """Return the classes that labels may name, by the names and numbers of the columns, and whether labels are names only."""
    names = [each for each in scores if each in given]
    numbers = names_of_numbers(_numbers_in(scores, given) or []) if len(scores) > 1 else None
    found = class_places(names) if len(names) == len(scores) else {}
    if numbers is None:
        return found, has_numbers(names)
    return class_places(numbers) | found, True


def _numbers_in(names: list[str], given: Mapping[str, Any]) -> list[int] | None:
    """Return the numbers of columns: those of usual names, or the ends of names with a role that are otherwise equal."""
    if any(name in given for name in names):
        return numbers_of(names)
    return [number for name in names if (number := _usual(name)[1]) is not None]


def _reject_other_numbers(scores: list[str], counts: list[str], given: Mapping[str, Any]) -> None:
    """Reject columns whose numbers name no class, the same class twice, or other classes than the scores' numbers."""
    numbers = _numbers_in(scores, given)
    if numbers is not None and len(set(numbers)) < len(numbers):
        detail = f"Received the columns {some_of(scores)}, two of one number; expected one column per class."
        raise CalibrationInputError.at(f"/{escaped(scores[-1])}", "one_of", detail)
    if len(scores) == 1 and scores[0] not in given and numbers not in (None, [1]):
        detail = (
            f"Received one column of scores, {scores[0]!r}, whose number is not that of class 1. "
            f"If it is the probability of class 1: `columns={scores[0]}:confidence`."
        )
        raise CalibrationInputError.at(f"/{escaped(scores[0])}", "class_number", detail)
    expected = list(range(len(scores))) if numbers is None else numbers
    if counts and len(scores) > 1 and _numbers_in(counts, given) not in (None, expected):
        detail = f"Received {some_of(counts)} with the scores {some_of(scores)}; expected one count for each, with equal numbers."
        raise CalibrationInputError.at(f"/{escaped(counts[0])}", "class_number", detail)


def _reject_two(names: Mapping[str, list[str]]) -> None:
    for role, found in names.items():
        if len(found) > 1 and role not in (*SCORES, "label_count", RATING):
            detail = f"Received columns {some_of(found)} for {role}; expected one. Give the others another role in `columns`."
            raise CalibrationInputError.at(f"/{escaped(found[1])}", "one_of", detail)
    for group in ((*SCORES, "confidence"), ("label", "label_count", RATING)):
        both = [role for role in group if role in names]
        if len(both) > 1:
            detail = f"Received columns for {both[0]} and for {both[1]}; expected one of them. Leave one out: `columns=NAME:ignore`."
            raise CalibrationInputError.at(f"/{escaped(names[both[1]][0])}", "one_of", detail)


def _given(
    columns: Mapping[str, Any], written: str | None
) -> dict[str, tuple[str | None, int | None]]:
    """Return the roles that the request writes, in its order."""
    found: dict[str, tuple[str | None, int | None]] = {}
    for order, part in enumerate(written.split(",") if written else ()):
        name, colon, role = (each.strip() for each in part.rpartition(":"))
        if not colon or role not in ROLES:
            detail = (
                f"Received {part[:60]!r}; expected NAME:ROLE with a role of {', '.join(ROLES)}."
            )
            raise CalibrationInputError.at("/columns", "role", detail)
        if name not in columns or name in found:
            detail = f"Received column {quoted(name)!r}; expected each of {some_of(list(columns))} at most once."
            raise CalibrationInputError.at("/columns", "unknown_field", detail)
        found[name] = (role, order)
    return found


def _usual(name: str) -> tuple[str | None, int | None]:
    """Return the role that a name means, None for no role, and its number.

    >>> [_usual(name) for name in ("p3", "logit_0", "unit", "rater_ann", "slice_site", "age")]
    [('probability', 3), ('logit', 0), ('unit', None), ('rating', None), ('slice', None), (None, None)]
    """
    numbered = _NUMBERED.fullmatch(name)
    if numbered:
        return _OF_PREFIX.get(numbered[1], numbered[1]), int(numbered[2])
    if name in _PLAIN:
        return name, None
    if _RATER.fullmatch(name):
        return RATING, None
    return ("slice" if _SLICE.fullmatch(name) else None), None


def _unknown(names: list[str]) -> CalibrationInputError:
    detail = (
        "Received column {}; expected p0, p1, …, logit0, …, confidence, label, label_count0, …, rater_NAME, id, unit, case, "
        "event_time, weight or slice_KEY. Name its role: `columns=NAME:ROLE`, such as NAME:ignore."
    )
    listed = [
        Violation(f"/{escaped(quoted(name))}", "unknown_field", detail.format(repr(quoted(name))))
        for name in names[:MAX_VIOLATIONS]
    ]
    return CalibrationInputError(listed, len(names))


def _numbers(name: str, column: Sequence[Any], plural: str, place: _Places) -> NDArray[np.float64]:
    """Return a column as float64; a text that is no number is a violation."""
    try:
        found = np.array([_float(each) for each in column], np.float64)
    except (TypeError, ValueError):
        rows = [row for row, each in enumerate(column) if not _is_number(each)]
        detail = f"Received {str(column[rows[0]])[:60]!r}; expected a number. Correct the value."
        place.reject(name, plural, rows, "number", detail)
        raise
    return found


def _float(value: Any) -> float:
    return number_of(value) if isinstance(value, str) else float(value)


def _is_number(value: Any) -> bool:
    try:
        _float(value)
    except (TypeError, ValueError):
        return False
    return True


def _whole(value: float) -> Any:
    return int(value) if value.is_integer() else value


def _names(name: str, column: Sequence[Any], plural: str, place: _Places) -> list[str]:
    """Return a column as texts, one in every row; whole numbers as such."""
    missing = (row for row, each in enumerate(column) if place.is_missing(each))
    place.reject(
        name, plural, missing, "missing", "Received no value; expected one, as other rows have."
    )
    return [_text(each) for each in column]


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.strip() if isinstance(value, str) else str(value)


def _labels(name: str, column: Sequence[Any], roles: _Columns, place: _Places) -> list[int | None]:
    """Return class indices, None where there is no rating; a label may be the name of a column of scores."""
    known: dict[Any, int | None] = {}
    found: list[int | None] = []
    others = []
    for row, value in enumerate(column):
        is_missing = place.is_missing(value, roles.classes)
        text = None if is_missing else _text(value)
        if text not in known:
            known[text] = (
                None
                if text is None
                else class_index(text, roles.classes, roles.are_names, roles.n_classes)
            )
        if known[text] is None and not is_missing:
            others.append(row)
        found.append(known[text])
    if others:
        place.reject(name, "labels", others, "class", _expected(column[others[0]], roles))
    return found


def _expected(value: Any, roles: _Columns) -> str:
    received, known = f"Received {str(value)[:60]!r}", some_of(list(roles.classes))
    if roles.are_names:
        return f"{received}; expected one of {known}, the classes of the columns of scores. For others, rename the columns."
    expected = f"one of {known} or an index" if known else "the index of a class"
    detail = f"{received}; expected {expected}. For names, use `columns=NAME:probability,…`."
    if str(value).lower() in OFTEN_MISSING:
        detail += " For no label, leave the cell blank."
    return detail


def _ratings(
    columns: Mapping[str, Sequence[Any]], roles: _Columns, place: _Places
) -> dict[str, Any]:
    """Return labels and raters: in each row those who rated, each by the name of its column."""
    by_rater = {name: _labels(name, columns[name], roles, place) for name in roles.ratings}
    labels: list[Any] = []
    raters: list[Any] = []
    for row in zip(*by_rater.values(), strict=True):
        given = [(name, each) for name, each in zip(by_rater, row, strict=True) if each is not None]
        labels.append([each for _, each in given] or None)
        raters.append([name for name, _ in given] or None)
    return {"labels": labels, "raters": raters}
