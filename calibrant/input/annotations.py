"""Long tables of annotations: one rating per line, with the item and the rater."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.class_labels import NO_RATING, ClassLabels, is_missing
from calibrant.input.names import checked_name
from calibrant.input.value_checks import MAX_VIOLATIONS, as_sequence, described

COLUMNS = ("ids", "raters", "labels")


class Annotations:
    """Ratings as a long table, in the place of `labels` of any function that also has the `ids` of its rows.

    If a rater rated an item twice, the last rating counts, and a missing one withdraws theirs, as at `POST labels`. Ratings of
    items without a prediction do not count; predictions without a rating have no label.

    Parameters
    ----------
    ids : (m,), the item of each rating: names or integers, as in `ids` of the predictions
    labels : (m,), a class each, as in `labels` of a row; None or NaN for none
    raters : (m,), names or integers, None for an unnamed rater. Default: all unnamed, so that every rating counts.

    Raises
    ------
    CalibrationInputError
        No column, columns of different lengths, or an invalid name.

    Examples
    --------
    >>> import calibrant as cal
    >>> long = cal.Annotations(ids=["a", "a", "b"], labels=[1, 0, 0], raters=["ann", "bo", "ann"])
    >>> cal.accuracy([0.9, 0.2], long, ids=["a", "b"]).value
    0.6666666666666666
    """

    def __init__(self, ids: Any, labels: Any, raters: Any = None) -> None:
        self.ids = _names("ids", ids)
        self.labels = _column("labels", labels, len(self.ids))
        self.is_named = raters is not None
        self.raters = _raters(raters, len(self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def check(self, classes: ClassLabels, ids: Collection[str]) -> None:
        """Reject labels that are no class, each with its place in this table; those of other items than `ids` do not count.

        Raises
        ------
        CalibrationInputError
            As described.
        """
        known = set(ids)
        found = [classes.class_of(each) for each in self.labels]
        wrong = [
            i
            for i, (item, label) in enumerate(zip(self.ids, found, strict=True))
            if item in known and label != NO_RATING and not 0 <= label < classes.n_classes
        ]
        violations = [
            Violation(f"/annotations/labels/{i}", *classes.violation(self.labels[i]))
            for i in wrong[:MAX_VIOLATIONS]
        ]
        if violations:
            raise CalibrationInputError(violations, len(wrong))

    def by_row(self, ids: Sequence[str]) -> tuple[list[list[Any]], list[list[str | None]]]:
        """Return labels and raters of each prediction, in the order of their first rating.

        Parameters
        ----------
        ids : of the predictions, each once

        Raises
        ------
        CalibrationInputError
            No prediction has a rating (`unknown_ids`).
        """
        rows = {name: row for row, name in enumerate(ids)}
        last: dict[tuple[int, str | int], tuple[str | None, Any]] = {}
        for line, (name, rater, label) in enumerate(
            zip(self.ids, self.raters, self.labels, strict=True)
        ):
            row = rows.get(name)
            if row is not None:
                last[row, line if rater is None else rater] = rater, label
        if self.ids and not last:
            raise CalibrationInputError.at("/annotations/ids", "unknown_ids", _UNKNOWN)
        return _lists(last, len(ids))


_UNKNOWN = (
    "Received annotations of items, and none is an id of a prediction; expected the same names. Ids are compared as texts: "
    '1 and "1" are one id, "1.0" is another.'
)


def _lists(
    last: dict[tuple[int, str | int], tuple[str | None, Any]], n: int
) -> tuple[list[list[Any]], list[list[str | None]]]:
    """Return labels and raters by row; a missing label is none."""
    labels: list[list[Any]] = [[] for _ in range(n)]
    raters: list[list[str | None]] = [[] for _ in range(n)]
    for (row, _), (rater, label) in last.items():
        if not is_missing(label):
            labels[row].append(label)
            raters[row].append(rater)
    return labels, raters


def _column(name: str, values: Any, n: int | None = None) -> list[Any]:
    """Return a column as a list of plain values."""
    found = as_sequence(values)
    if found is None:
        detail = f"Received {described(values)} for {name}; expected one value per rating, in a list or a column."
        raise CalibrationInputError.at(f"/annotations/{name}", "list", detail)
    if n is not None and len(found) != n:
        detail = f"Received {len(found)} rows of {name}; expected {n}, as many as ids."
        raise CalibrationInputError.at(f"/annotations/{name}", "length", detail)
    return found


def _names(name: str, values: Any) -> list[str]:
    return [
        checked_name(each, f"/annotations/{name}/{i}")
        for i, each in enumerate(_column(name, values))
    ]


def _raters(values: Any, n: int) -> list[str | None]:
    if values is None:
        return [None] * n
    return [
        None if is_missing(each) else checked_name(each, f"/annotations/raters/{i}")
        for i, each in enumerate(_column("raters", values, n))
    ]
