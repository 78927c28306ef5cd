"""Ratings of a request, sent as lists of classes or as counts: read to numbers by row and class; invalid rows are violations."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow_column import Lists
from calibrant.input.class_labels import NO_RATING, ClassLabels, is_missing
from calibrant.input.label_shares import counts_of
from calibrant.input.notes import POSSIBLY_ONE_HOT
from calibrant.input.one_hot import look_one_hot, reject_one_hot
from calibrant.input.value_checks import ViolationCollector, as_array, as_list, described

MAX_RATINGS = 1_000_000
# Ratings are counted in a table of all rows and classes if it is at most this many times as large as they are.
_DENSE = 16
_NO_RATINGS = (
    "empty_ratings",
    "Received an empty list of ratings; expected at least one, or null for none.",
)
_NUMBERS = frozenset({int, float})
_NUMBER_KINDS = "fiub"
LABELS = ("labels", "label_counts", "label_shares")
Ints = NDArray[np.int64]
Ratings = tuple[Ints, Ints, Ints]


class RatingColumns:
    """Reader of `labels` or `label_counts` of checked length.

    Attributes
    ----------
    warnings : codes of what looks unusual, once the ratings are read
    per_rating : number of counts that one rating has
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        violations: ViolationCollector,
        has_named_raters: bool = False,
    ) -> None:
        self.columns = columns
        self.violations = violations
        self.has_named_raters = has_named_raters
        self.warnings: tuple[str, ...] = ()
        self.per_rating = 1

    def read(self, n: int, classes: ClassLabels) -> Ratings:
        """Read row, class and number of ratings, by row, then class. Invalid rows become violations."""
        self._reject_two()
        if "label_counts" in self.columns:
            return self._from_counts(n, classes.n_classes)
        if "label_shares" in self.columns:
            return self._from_shares(classes.n_classes)
        if "labels" not in self.columns:
            return (np.zeros(0, np.int64),) * 3
        row, class_index = LabelColumn(self.columns["labels"], classes, self.violations).read(n)
        ratings = _ratings_of(row, class_index, n, classes.n_classes)
        if not self.has_named_raters and look_one_hot(*ratings, classes.n_classes):
            reject_one_hot(len(ratings[0]) // 2, classes.n_classes)
            self.warnings = (POSSIBLY_ONE_HOT,)
        return ratings

    def _reject_two(self) -> None:
        """Reject labels of two kinds, and a number of ratings without shares."""
        given = [name for name in LABELS if name in self.columns]
        if len(given) > 1:
            detail = f"Received both {given[0]} and {given[1]}; expected one of them."
            raise CalibrationInputError.at(f"/{given[1]}", "one_label_column", detail)
        if "n_ratings" in self.columns and "label_shares" not in given:
            detail = "Received n_ratings without label_shares; remove it. label_counts have their own number."
            raise CalibrationInputError.at("/n_ratings", "not_taken", detail)

    def _from_shares(self, k: int) -> Ratings:
        columns = self.columns
        shares, number = columns["label_shares"], columns.get("n_ratings")
        counts, self.per_rating = counts_of(shares, number, k, self.violations)
        row, class_index = np.nonzero(counts)
        return row.astype(np.int64), class_index.astype(np.int64), counts[row, class_index]

    def _from_counts(self, n: int, k: int) -> Ratings:
        array = _whole_counts(self.columns["label_counts"], n, k)
        if array is None:
            array = self._counts_by_row(self.columns["label_counts"], n, k)
        self.violations.rows(
            "label_counts",
            np.asarray((array < 0).any(axis=1)),
            "negative_count",
            "Received a negative count; expected at least 0.",
        )
        self.violations.rows(
            "label_counts",
            np.asarray((array > MAX_RATINGS).any(axis=1)),
            "count_limit",
            f"Received a count above {MAX_RATINGS}; expected at most {MAX_RATINGS} ratings per class.",
        )
        array = np.clip(array, 0, MAX_RATINGS)
        row, class_index = np.nonzero(array)
        return row.astype(np.int64), class_index.astype(np.int64), array[row, class_index]

    def _counts_by_row(self, column: Any, n: int, k: int) -> Ints:
        if isinstance(column, np.ndarray) and column.ndim != 2:
            detail = f"Received {described(column)}; expected one count for each of {k} classes."
            raise CalibrationInputError.at("/label_counts", "n_classes", detail)
        result = np.zeros((n, k), np.int64)
        rows = column.tolist() if isinstance(column, np.ndarray) else column
        for i, row in enumerate(map(as_list, rows)):
            if row is None:
                continue
            counts = _counts(row, k)
            if isinstance(counts, list):
                result[i] = counts
            else:
                self.violations.row("label_counts", i, *counts)
        return result


class LabelColumn:
    """Reader of the labels of rows: a class each, or one per rater."""

    def __init__(self, column: Any, classes: ClassLabels, violations: ViolationCollector) -> None:
        self.column = _plain_labels(column)
        self.classes = classes
        self.violations = violations

    def read(self, n: int) -> tuple[Ints, Ints]:
        """Return row and class of every rating."""
        column = self.column
        if isinstance(column, Lists):
            return self._of_lists(column)
        if isinstance(column, np.ndarray):
            if column.dtype.kind in _NUMBER_KINDS and column.size:
                rows = np.repeat(np.arange(n), column.size // n)
                return self._of_numbers(rows, column.reshape(-1))
            column = column.tolist()
        return self._of_objects(column, n)

    def _of_lists(self, lists: Lists) -> tuple[Ints, Ints]:
        lengths = lists.lengths
        self.violations.rows("labels", (lengths == 0) & ~lists.null, *_NO_RATINGS)
        return self._of_numbers(np.repeat(np.arange(len(lists)), lengths), lists.values)

    def _of_objects(self, column: list[Any], n: int) -> tuple[Ints, Ints]:
        """Read numbers together, anything else row by row."""
        kinds = set(map(type, column))
        lengths = np.ones(n, np.int64)
        if kinds == {list}:
            lengths = np.fromiter(map(len, column), np.int64, n)
            column_of_values = list(chain.from_iterable(column))
            kinds = set(map(type, column_of_values))
        else:
            column_of_values = column
        if (kinds <= _NUMBERS or kinds == {bool}) and kinds and (lengths > 0).all():
            values = as_array(column_of_values)
            if values is not None:
                return self._of_numbers(np.repeat(np.arange(n), lengths), values)
        return self._by_row(column)

    def _of_numbers(self, row: Ints, values: NDArray[Any]) -> tuple[Ints, Ints]:
        if values.dtype.kind == "b":
            self._reject_one_hot(row, values)
        found = self.classes.classes_of(values)
        k = self.classes.n_classes
        good = (found >= 0) & (found < k)
        if good.all():
            return row, found
        for i in np.flatnonzero(~good & (found != NO_RATING)):
            self._reject(int(row[i]), values[i])
        return row[good], found[good]

    def _reject_one_hot(self, row: Ints, values: NDArray[np.bool_]) -> None:
        """Reject truth values that look one-hot before they are rejected as labels of more than two classes."""
        n = int(row[-1]) + 1 if len(row) else 0
        k = self.classes.n_classes
        ratings = _ratings_of(row, values.astype(np.int64), n, max(k, 2))
        if look_one_hot(*ratings, k):
            reject_one_hot(n, k)

    def _by_row(self, column: list[Any]) -> tuple[Ints, Ints]:
        rows: list[int] = []
        found: list[int] = []
        for i, label in enumerate(map(as_list, column)):
            if is_missing(label):
                continue
            ratings = label if isinstance(label, list) else [label]
            if not ratings:
                self.violations.row("labels", i, *_NO_RATINGS)
            classes = [self.classes.class_of(rating) for rating in ratings]
            wrong = [
                each for each, c in zip(ratings, classes, strict=True) if not self._is_valid(c)
            ]
            if wrong:
                self._reject(i, wrong[0])
                continue
            classes = [each for each in classes if each != NO_RATING]
            rows += [i] * len(classes)
            found += classes
        return np.array(rows, np.int64), np.array(found, np.int64)

    def _is_valid(self, class_index: int) -> bool:
        return class_index == NO_RATING or 0 <= class_index < self.classes.n_classes

    def _reject(self, row: int, value: Any) -> None:
        self.violations.row("labels", row, *self.classes.violation(value))


def _plain_labels(column: Any) -> Any:
    """Return labels as `Lists`, an array of at most two axes or a list; masked values are None."""
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)
        column = np.array(column.data, object)
        column[mask] = None
    if isinstance(column, np.ndarray) and column.ndim > 2:
        detail = f"Received {described(column)} for labels; expected one class per row, (n,), or one per reader, (n, n_readers)."
        raise CalibrationInputError.at("/labels", "shape", detail)
    return column


def _ratings_of(row: Ints, class_index: Ints, n: int, k: int) -> Ratings:
    """Return row, class and number of every class that a row's ratings name, by row, then class."""
    if (row[1:] > row[:-1]).all():  # one rating for each row
        return row, class_index.astype(np.int64), np.ones(len(row), np.int64)
    if n * k <= _DENSE * len(row):
        ratings = np.bincount(row * k + class_index, minlength=n * k)
        pairs = np.flatnonzero(ratings)
        return pairs // k, pairs % k, ratings[pairs]
    pairs, count = np.unique(row * k + class_index, return_counts=True)
    return pairs // k, pairs % k, count.astype(np.int64)


def _whole_counts(column: Any, n: int, k: int) -> Ints | None:
    """Return counts of whole numbers or truth values, NaN as 0; None where they must be read row by row."""
    array = as_array(column)
    if array is None or array.shape != (n, k) or array.dtype.kind not in _NUMBER_KINDS:
        return None
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), 0.0, array)
        if not (np.isfinite(array) & (array == np.floor(array))).all():
            return None
        array = np.clip(array, -1.0, MAX_RATINGS + 1.0)
    if array.dtype.kind == "u":
        array = np.minimum(array.astype(np.uint64), np.uint64(MAX_RATINGS + 1))
    return np.clip(array.astype(np.int64), -1, MAX_RATINGS + 1)


def _counts(row: Any, k: int) -> list[int] | tuple[str, str]:
    """Return the counts of one row, bounded, or rule and detail of what is wrong with it."""
    if not isinstance(row, list) or len(row) != k:
        received = f"{len(row)} counts" if isinstance(row, list) else "no list of counts"
        return "n_classes", f"Received {received}; expected one count for each of {k} classes."
    counts = [0 if is_missing(value) else value for value in row]
    if all(_is_whole(value) for value in counts):
        return [int(min(max(value, -1), MAX_RATINGS + 1)) for value in counts]
    wrong = next(value for value in counts if not _is_whole(value))
    detail = f"Received {wrong!r:.40} ({type(wrong).__name__}), a count that is not an integer; expected integers."
    return "integer", detail


def _is_whole(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return float(value).is_integer()
    return isinstance(value, int | np.integer | np.bool_)
