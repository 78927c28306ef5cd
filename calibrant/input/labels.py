"""Checked labels by id: which ratings, by which rater, for which prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.class_labels import NO_RATING, ClassLabels, is_missing
from calibrant.input.class_texts import has_numbers
from calibrant.input.names import are_names, checked_name
from calibrant.input.notes import POSSIBLY_ONE_HOT
from calibrant.input.one_hot import reject_one_hot
from calibrant.input.value_checks import MAX_STORED, MAX_VIOLATIONS

KNOWN = ("ids", "labels", "raters", "revision")
WITHDRAWN = -1
MAX_REVISION = 2**31 - 1
MAX_RATERS = 200
MAX_NAMED = 1000


class LabelRow(NamedTuple):
    """Labels for one prediction id.

    Attributes
    ----------
    unnamed : class to number of unnamed ratings, which are added
    ratings : (rater, class or `WITHDRAWN`, revision or None)
    """

    id: str
    unnamed: dict[int, int]
    ratings: list[tuple[str, int, int | None]]


@dataclass
class CheckedLabels:
    """The valid rows, the first violations of the others with the number of all, and codes of what looks unusual.

    `unrated` are the places of valid rows that are not among them: each of their labels is no rating.
    """

    rows: list[LabelRow] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    n_violations: int = 0
    warnings: tuple[str, ...] = ()
    unrated: list[int] = field(default_factory=list)


def read_labels(
    columns: Mapping[str, Any],
    n_classes: int,
    class_names: Sequence[str] | None = None,
    partial: bool = False,
    ignored: Sequence[Any] = (),
) -> CheckedLabels:
    """Check the columns of a `labels` body.

    Parameters
    ----------
    columns : `ids`; `labels` with a class (or one per rater) per row, null where a named rater withdraws theirs; optional `raters` (a
        name, or one per rating, null for unnamed) and `revision` (an integer per row, or one per rating)
    n_classes, class_names : the model's
    partial : keep the valid rows instead of rejecting the batch
    ignored : labels that are no rating; a row of nothing else is left out

    Raises
    ------
    CalibrationInputError
        A rule about the complete batch is broken, or any row's and not `partial`.
    """
    for name in columns:
        if name not in KNOWN:
            detail = f"Received field {name!r}; expected one of {', '.join(KNOWN)}."
            raise CalibrationInputError.at(f"/{name}", "unknown_field", detail)
    for name in ("ids", "labels"):
        if columns.get(name) is None:
            detail = f"Received no {name}; expected a list with one entry per row."
            raise CalibrationInputError.at(f"/{name}", "missing", detail)
    n = len(_list("ids", columns["ids"]))
    for name, column in columns.items():
        if column is not None and len(_list(name, column)) != n:
            detail = f"Received {len(column)} rows of {name}; expected {n}, as many as ids."
            raise CalibrationInputError.at(f"/{name}", "length", detail)
    if n == 0:
        raise CalibrationInputError.at("/ids", "empty", "Received no rows; expected at least one.")
    is_plain = not ignored and not has_numbers(
        [each for each in class_names or () if isinstance(each, str)]
    )
    together = _rows_together(columns, n_classes) if is_plain else None
    if together is not None:
        return _noticed(CheckedLabels(together), n_classes)
    classes = ClassLabels(n_classes, class_names, ignored)
    checked = CheckedLabels()
    for i in range(n):
        row = {name: column[i] for name, column in columns.items() if column is not None}
        try:
            found = _row(row, i, classes)
            if found is None:
                checked.unrated.append(i)
            else:
                checked.rows.append(found)
        except CalibrationInputError as error:
            checked.n_violations += 1
            if len(checked.violations) < MAX_STORED:
                checked.violations += error.violations
    if checked.violations and not partial:
        raise CalibrationInputError(checked.violations[:MAX_VIOLATIONS], checked.n_violations)
    if not checked.rows and not checked.violations:
        detail = "Received no rating: every label is null or ignored. Send at least one."
        raise CalibrationInputError.at("/labels", "empty_ratings", detail)
    return _noticed(checked, n_classes)


def _noticed(checked: CheckedLabels, n_classes: int) -> CheckedLabels:
    """Return checked labels with a warning if they look like one-hot vectors."""
    if _look_one_hot(checked.rows, n_classes):
        reject_one_hot(len(checked.rows), n_classes)
        checked.warnings = (POSSIBLY_ONE_HOT,)
    return checked


def _look_one_hot(rows: Sequence[LabelRow], k: int) -> bool:
    """Return whether every row has `k` unnamed ratings: one of class 1, all others of class 0."""
    return bool(rows) and all(not row.ratings and row.unnamed == {0: k - 1, 1: 1} for row in rows)


def _rows_together(columns: Mapping[str, Any], n_classes: int) -> list[LabelRow] | None:
    """Return rows of class indices, all with raters or all without; None if one may be of another form or invalid."""
    ids, labels, raters = columns["ids"], columns["labels"], columns.get("raters")
    if columns.get("revision") is not None or not are_names(ids):
        return None
    rated = _rated_rows(labels)
    classes = list(chain.from_iterable(rated or ()))
    if rated is None or set(map(type, classes)) != {int}:
        return None
    if min(classes) < 0 or max(classes) >= n_classes:
        return None
    if raters is None:
        return [LabelRow(name, _counted(row), []) for name, row in zip(ids, rated, strict=True)]
    by = _rated_rows(raters)
    if by is None or not _fit(by, rated):
        return None
    ratings = map(zip, by, rated, repeat(repeat(None)))
    return [LabelRow(name, {}, list(each)) for name, each in zip(ids, ratings, strict=True)]


def _rated_rows(column: Sequence[Any]) -> Sequence[Sequence[Any]] | None:
    """Return one list per row, none of them empty; None of a column with other values."""
    if set(map(type, column)) == {list}:
        return column if all(column) else None
    return None if list in map(type, column) else [(each,) for each in column]


def _fit(by: Sequence[Sequence[Any]], rated: Sequence[Sequence[Any]]) -> bool:
    """Return whether each rating has a rater, and no row one of them twice."""
    lengths = list(map(len, by))
    names = set(chain.from_iterable(by)) if _are_texts(by) else set()
    return (
        lengths == list(map(len, rated))
        and max(lengths) <= MAX_NAMED
        and bool(names)
        and are_names(list(names))
        and (max(lengths) == 1 or lengths == [len(set(row)) for row in by])
    )


def _are_texts(rows: Sequence[Sequence[Any]]) -> bool:
    return set(map(type, chain.from_iterable(rows))) == {str}


def _counted(classes: Sequence[int]) -> dict[int, int]:
    if len(classes) == 1:
        return {classes[0]: 1}
    counts: dict[int, int] = {}
    for class_index in classes:
        counts[class_index] = counts.get(class_index, 0) + 1
    return counts


def named_raters(
    labels: Any,
    raters: Any,
    n_classes: int,
    rows: NDArray[np.int64] | None = None,
    ignored: Sequence[Any] = (),
    class_names: Sequence[Any] | None = None,
) -> dict[str, NDArray[np.int64]]:
    """Return each named rater's class for every row, or for those of `rows` alone, -1 where they gave none.

    Parameters
    ----------
    labels : a class (or one per rater) per row, null for none, already checked
    raters : a name, or one per rating, null for unnamed
    n_classes : of the labels
    rows : places of the valid rows
    ignored : labels that are no rating
    class_names : of the classes; None for labels that are indices

    Raises
    ------
    CalibrationInputError
        Invalid names, names without a rating, or names that are repeated in a row; more than `MAX_RATERS` of them.
    """
    if not isinstance(labels, list):
        detail = "Received raters without labels; expected labels, one rating per rater. label_counts have no order."
        raise CalibrationInputError.at("/raters", "labels_required", detail)
    if len(_list("raters", raters)) != len(labels):
        detail = (
            f"Received {len(raters)} rows of raters; expected {len(labels)}, as many as labels."
        )
        raise CalibrationInputError.at("/raters", "length", detail)
    found: dict[str, NDArray[np.int64]] = {}
    classes = ClassLabels(n_classes, class_names, ignored)
    good = range(len(labels)) if rows is None else rows.tolist()
    for place, i in enumerate(good):
        label, names = labels[i], raters[i]
        ratings = label if isinstance(label, list) else [] if label is None else [label]
        if not ratings and names in (None, []):
            continue
        for name, rating in zip(
            _spread(names, len(ratings), f"/raters/{i}", "rater"), ratings, strict=True
        ):
            if name is None:
                continue
            name = checked_name(name, f"/raters/{i}")
            own = found.setdefault(name, np.full(len(good), -1, np.int64))
            if own[place] >= 0:
                detail = f"Received two ratings of rater {name!r} for this row; expected one."
                raise CalibrationInputError.at(f"/raters/{i}", "repeated_rater", detail)
            own[place] = max(classes.class_of(rating), WITHDRAWN)
        if len(found) > MAX_RATERS:
            detail = f"Received more than {MAX_RATERS} named raters; expected at most {MAX_RATERS}."
            raise CalibrationInputError.at("/raters", "too_many_raters", detail)
    return found


def _list(name: str, column: Any) -> list[Any]:
    if not isinstance(column, list):
        detail = f"Received another type for {name}; expected a list with one entry per row."
        raise CalibrationInputError.at(f"/{name}", "list", detail)
    return column


def _row(row: Mapping[str, Any], i: int, classes: ClassLabels) -> LabelRow | None:
    """Return the ratings of a row; None if each of them is a value that is no rating."""
    name = checked_name(row["ids"], f"/ids/{i}")
    label = row["labels"]
    ratings = label if isinstance(label, list) else [label]
    if not ratings:
        detail = "Received no rating; expected at least one per row."
        raise CalibrationInputError.at(f"/labels/{i}", "empty_ratings", detail)
    raters = _spread(row.get("raters"), len(ratings), f"/raters/{i}", "rater")
    revisions = _spread(row.get("revision"), len(ratings), f"/revision/{i}", "revision")
    unnamed: dict[int, int] = {}
    named: dict[str, tuple[str, int, int | None]] = {}
    for rating, rater, revision in zip(ratings, raters, revisions, strict=True):
        class_index = classes.class_of(rating)
        if class_index == NO_RATING:
            if rater is None or not is_missing(rating):
                continue
            class_index = WITHDRAWN
        elif not 0 <= class_index < classes.n_classes:
            raise CalibrationInputError.at(f"/labels/{i}", *classes.violation(rating))
        if rater is None:
            if revision not in (None, 0):
                detail = "Received a revision without a rater; expected a rater's name with it."
                raise CalibrationInputError.at(f"/revision/{i}", "rater_required", detail)
            unnamed[class_index] = unnamed.get(class_index, 0) + 1
            continue
        rater = checked_name(rater, f"/raters/{i}")
        if rater in named:
            detail = f"Received two ratings of rater {rater!r} for this row; expected one."
            raise CalibrationInputError.at(f"/raters/{i}", "repeated_rater", detail)
        if revision is not None and (
            type(revision) is not int or not 0 <= revision <= MAX_REVISION
        ):
            detail = "Received an invalid revision; expected an integer of at least 0."
            raise CalibrationInputError.at(f"/revision/{i}", "integer", detail)
        named[rater] = (rater, class_index, revision)
    if len(named) > MAX_NAMED:
        detail = f"Received {len(named)} named raters; expected at most {MAX_NAMED} per prediction."
        raise CalibrationInputError.at(f"/raters/{i}", "too_many_raters", detail)
    if not unnamed and not named:
        if not all(map(is_missing, ratings)):
            return None
        detail = (
            "Received null without a rater; expected a rater's name, whose rating null withdraws."
        )
        raise CalibrationInputError.at(f"/labels/{i}", "rater_required", detail)
    return LabelRow(name, unnamed, list(named.values()))


def _spread(value: Any, n: int, pointer: str, what: str) -> list[Any]:
    """Return one value per rating: the list itself, or the same value for all."""
    if not isinstance(value, list):
        if value is not None and n > 1 and what == "rater":
            detail = f"Received one rater for {n} ratings; expected a list of {n}."
            raise CalibrationInputError.at(pointer, "length", detail)
        return [value] * n
    if len(value) != n:
        detail = f"Received {len(value)} entries of {what}; expected {n}, one per rating."
        raise CalibrationInputError.at(pointer, "length", detail)
    return value
