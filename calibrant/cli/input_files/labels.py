"""Labels as class indices: numbers, or names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.roles import listed
from calibrant.cli.input_files.tables import FileTable
from calibrant.input.cell_texts import OFTEN_MISSING
from calibrant.input.class_labels import ClassLabels
from calibrant.input.class_texts import class_index, class_places, has_numbers


def class_indices(
    columns: list[list[str | None]],
    classes: KnownClasses,
    table: FileTable,
    label: str | None,
    raters: list[str],
) -> list[list[int | None]]:
    """Return class indices, one list per column; None where there is no rating.

    Raises
    ------
    InputFileError
        A label is neither a class index nor the name of a class.
    """
    found: list[list[int | None]] = []
    names: list[str | None] = [*raters] if raters else [label]
    for text_column, name in zip(columns, names, strict=True):
        known: dict[str | None, int | None] = {None: None}
        for row, text in enumerate(text_column):
            if text not in known:
                known[text] = _class_index(str(text), classes, table, name, row)
        found.append([known[text] for text in text_column])
    return found


def labels_of(columns: list[list[int | None]]) -> Any:
    """Return the labels of rows: an array for one label per row, lists for several raters; None where there is no rating."""
    if len(columns) == 1:
        (single,) = columns
        return single if None in single else np.array(single, np.int64)
    ratings = [[each for each in row if each is not None] for row in zip(*columns, strict=True)]
    return [row or None for row in ratings]


def ratings_by_reader(columns: list[list[int | None]]) -> NDArray[np.int64] | None:
    """Return the class by row and reader, -1 where there is no rating; None unless there are several readers."""
    if len(columns) == 1:
        return None
    return np.array([[-1 if each is None else each for each in row] for row in columns], np.int64).T


class KnownClasses:
    """Names of classes, and whether a label must be one of them.

    Parameters
    ----------
    names : of the classes; empty for indices
    ignored : numbers that mean no label
    n_classes : number of classes; of two, truth values are labels
    """

    def __init__(
        self, names: Sequence[str], ignored: Sequence[int] = (), n_classes: int | None = None
    ) -> None:
        self.names, self._ignored = list(names), frozenset(ignored)
        self.n_classes = n_classes
        self.places, self.are_names = class_places(names), has_numbers(names)

    def is_ignored(self, text: str) -> bool:
        """Return whether a text means no label."""
        return bool(self._ignored) and class_index(text, {}, False) in self._ignored

    def expected(self, text: str) -> str:
        """Return what was expected instead of a text, and what to do."""
        if not self.names:
            return "the index of a class, from 0. For names, pass --classes NAME,NAME,..."
        if not self.are_names:
            return f"one of {listed(self.names)} or an index."
        advice = f"one of {listed(self.names)}."
        if class_index(text, {}, False) is not None:
            order = ",".join(map(str, range(len(self.names))))
            advice += f" These are the classes of the columns of scores. If the columns are the classes 0, 1, … in this order, pass --classes {order}."
        return advice


def _class_index(
    text: str, classes: KnownClasses, table: FileTable, name: str | None, row: int
) -> int | None:
    if classes.is_ignored(text):
        return None
    found = class_index(text, classes.places, classes.are_names, classes.n_classes)
    if found is not None:
        _reject_beyond(found, classes, table, name, row)
        return found
    if text.lower() in OFTEN_MISSING:
        expected = f"a class. If it means no label, pass --na {text}."
    else:
        expected = classes.expected(text)
    detail = f"Received {text[:60]!r}; expected {expected}"
    raise InputFileError(table.path, detail, "class", name, row, table.line(row))


def _reject_beyond(
    found: int, classes: KnownClasses, table: FileTable, name: str | None, row: int
) -> None:
    """Reject the index of a class that there is not."""
    n = classes.n_classes
    if n is not None and not 0 <= found < n:
        rule, detail = ClassLabels(n).violation(found)
        raise InputFileError(table.path, detail, rule, name, row, table.line(row))
