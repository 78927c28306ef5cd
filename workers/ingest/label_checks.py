"""Ranges of labels and deletions in entries, checked before any of an entry counts.

The API rejects such values before it appends a batch. Entries also come from elsewhere: from other writers of the stream, and
from other versions. A class outside the model would be stored with the record, and fail only when its pane is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant.input.labels import MAX_NAMED, MAX_REVISION, WITHDRAWN
from calibrant.input.names import NAME_RULE, are_names, name_of
from calibrant_server.workers.ingest.entries import InvalidValueError, Places
from calibrant_server.workers.ingest.payloads import PlainLabels, SentLabels
from calibrant_server.workers.join.record_format import MAX_RATINGS_OF_CLASS


def check_labels(sent: SentLabels, n_classes: int, places: Places | None = None) -> None:
    """Raise InvalidValueError for the first row with a value out of range; `places` are the numbers of the rows as sent."""
    checks = _RowChecks(n_classes, places)
    plain = sent.plain
    is_valid = (
        _are_valid(sent.packed_rows, n_classes) if plain is None else _is_valid(plain, n_classes)
    )
    if not is_valid:
        for row, (name, unnamed, ratings) in enumerate(sent.packed_rows):
            checks.row(row, name, unnamed, ratings)


def check_removal(name: Any) -> None:
    """Raise InvalidValueError unless the id of a deletion is a name."""
    if not _is_name(name):
        raise InvalidValueError("/id", "name", f"received {_quoted(name)}; expected {NAME_RULE}")


def _is_valid(plain: PlainLabels, n_classes: int) -> bool:
    classes, counts = plain.class_index, plain.n_ratings
    in_range = (classes >= 0) & (classes < n_classes)
    in_range &= (counts > 0) & (counts <= MAX_RATINGS_OF_CLASS)
    return bool(np.all(in_range)) and are_names(plain.ids)


def _are_valid(rows: Sequence[Any], n_classes: int) -> bool:
    """Return whether each row has one rating of one named rater, without a revision, and all are in range."""
    if not all(len(ratings) == 1 and not unnamed for _, unnamed, ratings in rows):
        return False
    found = [ratings[0] for _, _, ratings in rows]
    if set(map(type, found)) != {list} or set(map(len, found)) != {3}:
        return False
    raters, classes, revisions = zip(*found, strict=True)
    return (
        set(map(type, classes)) == {int}
        and min(classes) >= WITHDRAWN
        and max(classes) < n_classes
        and revisions.count(None) == len(revisions)
        and are_names(raters)
        and are_names([name for name, _, _ in rows])
    )


class _RowChecks:
    """Checks of one row at a time; an error has the pointer to the value as the client sent it."""

    def __init__(self, n_classes: int, places: Places | None) -> None:
        self._n_classes = n_classes
        self._places = places

    def row(self, row: int, name: Any, unnamed: list[Any], ratings: list[Any]) -> None:
        """Check the id, the unnamed and the named ratings of a row."""
        if not _is_name(name):
            self._reject("ids", row, "name", f"received {_quoted(name)}; expected {NAME_RULE}")
        if not unnamed and not ratings:
            self._reject("labels", row, "empty_ratings", "received no rating; expected at least 1")
        self._unnamed(row, unnamed)
        self._named(row, ratings)

    def _unnamed(self, row: int, unnamed: list[Any]) -> None:
        for class_index, n in (self._values(row, each, 2) for each in unnamed):
            self._class(row, class_index, lowest=0)
            if not _is_whole(n, 1, MAX_RATINGS_OF_CLASS):
                detail = f"received {_quoted(n)} ratings of class {class_index}; expected 1 to {MAX_RATINGS_OF_CLASS}"
                self._reject("labels", row, "n_ratings", detail)
        if len({class_index for class_index, _ in unnamed}) < len(unnamed):
            self._reject("labels", row, "repeated_class", "received a class twice; expected once")

    def _named(self, row: int, ratings: list[Any]) -> None:
        for rater, class_index, revision in (self._values(row, each, 3) for each in ratings):
            if not _is_name(rater):
                detail = f"received {_quoted(rater)}; expected {NAME_RULE}"
                self._reject("raters", row, "name", detail)
            self._class(row, class_index, lowest=WITHDRAWN)
            if revision is not None and not _is_whole(revision, 0, MAX_REVISION):
                detail = f"received {_quoted(revision)}; expected null or 0 to {MAX_REVISION}"
                self._reject("revision", row, "integer", detail)
        if len(ratings) > MAX_NAMED:
            detail = f"received {len(ratings)} named raters; expected at most {MAX_NAMED}"
            self._reject("raters", row, "too_many_raters", detail)
        if len({rater for rater, _, _ in ratings}) < len(ratings):
            self._reject("raters", row, "repeated_rater", "received a rater twice; expected once")

    def _class(self, row: int, class_index: Any, lowest: int) -> None:
        if not _is_whole(class_index, lowest, self._n_classes - 1):
            detail = f"received class {_quoted(class_index)}; expected an integer from {lowest} to {self._n_classes - 1}"
            self._reject("labels", row, "class_range", detail)

    def _values(self, row: int, rating: Any, n: int) -> Sequence[Any]:
        if type(rating) is not list or len(rating) != n:
            detail = f"received {_quoted(rating)}; expected a list of {n} values"
            self._reject("labels", row, "rating", detail)
        values: list[Any] = rating
        return values

    def _reject(self, column: str, row: int, rule: str, detail: str) -> None:
        pointer = f"/{column}/{row}"
        if self._places is not None:
            pointer = self._places.pointer(column, row)
        raise InvalidValueError(pointer, rule, detail)


def _is_whole(value: Any, lowest: int, highest: int) -> bool:
    return type(value) is int and lowest <= value <= highest


def _is_name(value: Any) -> bool:
    return type(value) is str and name_of(value) == value


def _quoted(value: Any) -> str:
    return repr(value)[:40]
