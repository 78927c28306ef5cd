"""Ratings of a request, sent as lists of classes or as counts: read to numbers by row and class; invalid rows are violations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow_column import Lists
from calibrant.input.value_checks import (
    ViolationCollector,
    as_array,
    as_list,
    has_bools,
    is_integer,
)

MAX_RATINGS = 1_000_000
# Ratings are counted in a table of all rows and classes if it is at most this many times as large as they are.
_DENSE = 16
_NO_RATINGS = (
    "empty_ratings",
    "Received an empty list of ratings; expected at least one, or null for none.",
)
Ratings = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class RatingColumns:
    """Reader of `labels` or `label_counts` of checked length."""

    def __init__(self, columns: Mapping[str, Any], violations: ViolationCollector) -> None:
        self.columns = columns
        self.violations = violations

    def read(self, n: int, k: int, class_names: Sequence[str] | None) -> Ratings:
        """Read row, class and number of ratings, by row, then class. Invalid rows become violations."""
        if "labels" in self.columns and "label_counts" in self.columns:
            raise CalibrationInputError.at(
                "/label_counts",
                "one_label_column",
                "Received both labels and label_counts; expected one of them.",
            )
        if "label_counts" in self.columns:
            return self._from_counts(n, k)
        if "labels" in self.columns:
            row, class_index = self._ratings(n, k, class_names)
            return _ratings_of(row, class_index, n, k)
        return (np.zeros(0, np.int64),) * 3

    def _from_counts(self, n: int, k: int) -> Ratings:
        column = self.columns["label_counts"]
        array = as_array(column)
        if (
            array is None
            or array.shape != (n, k)
            or array.dtype.kind not in "iu"
            or has_bools(column)
        ):
            array = self._counts_by_row(column, n, k)
        array = _bounded(array, MAX_RATINGS + 1)
        negative = np.asarray((array < 0).any(axis=1))
        self.violations.rows(
            "label_counts",
            negative,
            "negative_count",
            "Received a negative count; expected at least 0.",
        )
        most = np.asarray((array > MAX_RATINGS).any(axis=1))
        self.violations.rows(
            "label_counts",
            most,
            "count_limit",
            f"Received a count above {MAX_RATINGS}; expected at most {MAX_RATINGS} ratings per class.",
        )
        array = np.clip(array, 0, MAX_RATINGS)
        row, class_index = np.nonzero(array)
        return row.astype(np.int64), class_index.astype(np.int64), array[row, class_index]

    def _counts_by_row(self, column: Any, n: int, k: int) -> NDArray[np.int64]:
        result = np.zeros((n, k), np.int64)
        rows = column.tolist() if isinstance(column, np.ndarray) else column
        for i, row in enumerate(map(as_list, rows)):
            if row is None:
                continue
            if not isinstance(row, list) or len(row) != k:
                self.violations.row(
                    "label_counts",
                    i,
                    "n_classes",
                    f"Received {_length(row)}; expected one count for each of {k} classes.",
                )
            elif not all(is_integer(value) for value in row):
                self.violations.row(
                    "label_counts",
                    i,
                    "integer",
                    "Received a count that is not an integer; expected integers.",
                )
            else:
                result[i] = [min(max(value, -1), MAX_RATINGS + 1) for value in row]
        return result

    def _ratings(
        self, n: int, k: int, class_names: Sequence[str] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row and class of every rating."""
        column = self.columns["labels"]
        if isinstance(column, Lists):
            return self._ratings_of_lists(column, k)
        if isinstance(column, np.ndarray):
            if column.dtype.kind in "iu" and column.ndim in (1, 2) and column.size:
                return self._in_range(
                    np.repeat(np.arange(n), column.size // n), column.reshape(-1), k
                )
            column = column.tolist()
        kinds = set(map(type, column))
        if kinds == {list}:
            flat = list(chain.from_iterable(column))
            lengths = np.fromiter(map(len, column), np.int64, n)
            if set(map(type, flat)) == {int} and (lengths > 0).all():
                return self._in_range(np.repeat(np.arange(n), lengths), flat, k)
        elif kinds == {int}:
            return self._in_range(np.arange(n), column, k)
        return self._ratings_by_row(column, k, class_names)

    def _ratings_of_lists(
        self, lists: Lists, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        lengths = lists.lengths
        self.violations.rows("labels", (lengths == 0) & ~lists.null, *_NO_RATINGS)
        return self._in_range(np.repeat(np.arange(len(lists)), lengths), lists.values, k)

    def _in_range(
        self, row: NDArray[np.int64], flat: list[int] | NDArray[Any], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if isinstance(flat, np.ndarray):
            class_index = _bounded(flat, k)
        else:
            try:
                class_index = np.array(flat, np.int64)
            except OverflowError:
                class_index = np.array([min(max(value, -1), k) for value in flat], np.int64)
        if class_index.size and class_index.min() >= 0 and class_index.max() < k:
            return row, class_index
        good = (class_index >= 0) & (class_index < k)
        for i in np.flatnonzero(~good):
            detail = f"Received class {_short(int(flat[i]))}; expected an integer from 0 to {k - 1}. Classes count from 0. Correct the label."
            self.violations.row("labels", int(row[i]), "class_range", detail)
        return row[good], class_index[good]

    def _ratings_by_row(
        self, column: list[Any], k: int, class_names: Sequence[str] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        index = {name: i for i, name in enumerate(class_names or ())}
        rows: list[int] = []
        flat: list[int] = []
        for i, label in enumerate(map(as_list, column)):
            if label is None:
                continue
            ratings = label if isinstance(label, list) else [label]
            if not ratings:
                self.violations.row("labels", i, *_NO_RATINGS)
            for rating in ratings:
                class_index = index.get(rating, rating) if isinstance(rating, str) else rating
                if not is_integer(class_index):
                    self.violations.row("labels", i, "class_index", _class_detail(rating, index))
                    break
                rows.append(i)
                flat.append(int(class_index))
        return self._in_range(np.array(rows, np.int64), flat, k)


def _ratings_of(row: NDArray[np.int64], class_index: NDArray[np.int64], n: int, k: int) -> Ratings:
    """Return row, class and number of every class that a row's ratings name, by row, then class."""
    if n * k <= _DENSE * len(row):
        ratings = np.bincount(row * k + class_index, minlength=n * k)
        pairs = np.flatnonzero(ratings)
        return pairs // k, pairs % k, ratings[pairs]
    pairs, count = np.unique(row * k + class_index, return_counts=True)
    return pairs // k, pairs % k, count.astype(np.int64)


def _class_detail(rating: Any, index: Mapping[str, int]) -> str:
    if rating is None:
        return "Received null inside a list of ratings; leave the rating out."
    if isinstance(rating, str) and index:
        return f"Received class {rating[:40]!r}; expected a class of this model. Correct the label."
    received = f"{rating!r:.40} ({type(rating).__name__})"
    return f"Received {received}, which is not a class; expected a class index, an integer. Correct the label."


def _length(counts: Any) -> str:
    return f"{len(counts)} counts" if isinstance(counts, list) else "no list of counts"


def _bounded(values: NDArray[Any], high: int) -> NDArray[np.int64]:
    """Return integers of any width as int64, from -1 to `high`."""
    if values.dtype.kind == "u":
        return np.minimum(values.astype(np.uint64), np.uint64(high)).astype(np.int64)
    return np.clip(values.astype(np.int64), -1, high)


def _short(value: int) -> str:
    return str(value) if abs(value) < 2**63 else "beyond 64 bits"
