"""Labels as class indices: numbers, or names of classes, in columns, in a long table of one rating per line, or as numbers per class or event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.columns import Files
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.roles import (
    ColumnRoles,
    classes_of,
    is_rater,
    label_of,
    listed,
    named,
)
from calibrant.cli.input_files.tables import FileTable
from calibrant.core.errors import CalibrationInputError
from calibrant.input.annotations import Annotations
from calibrant.input.cell_texts import OFTEN_MISSING
from calibrant.input.class_labels import ClassLabels
from calibrant.input.class_texts import class_index, class_places, has_numbers, numbers_of
from calibrant.input.table_names import matched


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


Order = NDArray[np.int64] | None


def reject_other_labels(path: Path, roles: ColumnRoles) -> None:
    """Reject labels of two kinds, and a number of ratings without shares.

    Raises
    ------
    InputFileError
        As described.
    """
    if roles.shares is not None and (roles.label or roles.raters or roles.long):
        detail = "Received both labels and label_shares; expected one of them: --label, --raters and --long name labels."
        raise InputFileError(path, detail, "one_label_column")
    if roles.n_ratings is not None and roles.shares is None:
        detail = "Received n_ratings without label_shares; expected --label-shares, too."
        raise InputFileError(path, detail, "not_taken")


def share_columns(files: Files, order: Order, classes: Sequence[str] | None) -> dict[str, Any]:
    """Return `label_shares`, and `n_ratings` where a column has the number, as arguments of the library."""
    table, roles = files.label_table, files.roles
    assert roles.shares is not None
    shares = _columns(files, roles.shares, "--label-shares")
    names = _matched(table.path, shares, classes)
    found: dict[str, Any] = {"label_shares": _in_order(table.numbers(names), order)}
    if roles.n_ratings is not None:
        column = named(table, roles.n_ratings, "--n-ratings")
        found["n_ratings"] = _in_order(table.numbers(column)[:, 0], order)
    return found


def event_labels(
    files: Files, order: Order, score_names: Sequence[str]
) -> tuple[NDArray[np.float64], list[str] | None]:
    """Return 0, 1 or NaN by row and event, float64 (n, n_labels), and the names of the events; None for their places.

    Raises
    ------
    InputFileError
        No columns of labels, or a value that is neither 0 nor 1.
    """
    table, roles = files.label_table, files.roles
    columns = _event_columns(files)
    by_name = _matched(table.path, columns, score_names if files.table.is_named else None)
    names = _names(files, score_names, by_name)
    if len(columns) == 1 and hasattr(table, "columns"):
        return _in_order(table.numbers(columns), order), names
    known = KnownClasses((), roles.ignored, 2)
    found = [class_indices([table.texts(name)], known, table, name, [])[0] for name in by_name]
    values = np.array([[np.nan if each is None else each for each in column] for column in found])
    return _in_order(values.T, order), names


def _event_columns(files: Files) -> list[str]:
    table, roles = files.label_table, files.roles
    if roles.label is not None:
        return _columns(files, roles.label, "--label")
    if files.is_one:
        detail = f"Name the columns of labels, one per event: --label 'label_*'. The columns are {listed(table.names)}."
        raise InputFileError(table.path, detail, "no_label")
    return files.all_raters(table)


def _columns(files: Files, option: str, name: str) -> list[str]:
    """Return the columns that an option names; `all` of a file of labels are those without another role."""
    is_all = option == "all" and not files.is_one and "all" not in files.label_table.names
    return files.all_raters(files.label_table) if is_all else named(files.label_table, option, name)


def _names(files: Files, score_names: Sequence[str], columns: Sequence[str]) -> list[str] | None:
    """Return the names of the events: the option's, else those of the scores unless these are numbered, else those of the labels."""
    if files.roles.classes is not None:
        return list(files.roles.classes)
    for table, names in ((files.table, score_names), (files.label_table, columns)):
        if table.is_named and len(names) > 1 and (found := classes_of(names)) is not None:
            return found
    return None


def _matched(path: Path, columns: Sequence[str], names: Sequence[str] | None) -> list[str]:
    """Return columns in the order of the classes or events: by their names, or by their numbers, else as they are.

    Raises
    ------
    InputFileError
        Both have numbers, and not the same.
    """
    found = None if names is None else matched(columns, names)
    numbers = numbers_of(columns) if len(columns) > 1 else None
    if found is not None or numbers is None:
        return found or list(columns)
    wanted = (numbers_of(names) if names else None) or sorted(numbers)
    if sorted(wanted) != sorted(numbers):
        given, expected = (listed(list(map(str, each))) for each in (numbers, wanted))
        detail = f"Received columns of labels numbered {given}; expected the numbers of the scores: {expected}."
        raise InputFileError(path, detail, "class_number")
    return [columns[numbers.index(number)] for number in wanted]


def _in_order(values: NDArray[np.float64], order: Order) -> NDArray[np.float64]:
    return values if order is None else values[order]


_WORKERS = ("worker", "worker_id", "performer", "user", "user_id")
# Of more raters, a crowd, the report has no results of each.
MAX_READERS = 50


def long_labels(
    files: Files, classes: KnownClasses
) -> tuple[list[list[int | None]], str, list[str]]:
    """Return one column of classes per rater, the column of the labels, and the raters.

    Raises
    ------
    InputFileError
        A file, column or value is not allowed.
    """
    table, roles = files.label_table, files.roles
    if files.is_one or roles.id is None:
        detail = "--long takes a file of labels besides the scores, and the column of items in both: --id COLUMN."
        raise InputFileError(table.path, detail, "long")
    (item,) = named(table, roles.id, "--id")
    label = label_of(table) if roles.label is None else named(table, roles.label, "--label")[0]
    if label is None:
        raise InputFileError(table.path, files.no_label(table), "no_label")
    rater = _rater_column(table, roles.raters, (item, label))
    (found,) = class_indices([table.texts(label, classes.names)], classes, table, label, [])
    items = _items(table, item, files.coded_texts(table, item))
    raters = None if rater is None else files.coded_texts(table, rater)
    ids = files.ids_of(files.table, roles.id)
    columns, readers = _by_reader(table, items, raters, found, ids)
    return columns, label, readers


def _items(table: FileTable, column: str, found: list[str | None]) -> list[str]:
    """Return the item of each line."""
    if None in found:
        row, detail = found.index(None), "Received no item; expected one in every line."
        raise InputFileError(table.path, detail, "id", column, row, table.line(row))
    return [str(each) for each in found]


def _rater_column(table: FileTable, raters: str | None, taken: Sequence[str | None]) -> str | None:
    """Return the column of the names of raters; None of a table that has only items and labels.

    Raises
    ------
    InputFileError
        No column, or several, could hold them.
    """
    others = [name for name in table.names if name not in taken]
    if raters is not None:
        found = named(table, raters, "--raters")
    else:
        found = [name for name in others if is_rater(name) or name.lower() in _WORKERS]
    if len(found) == 1 or not others:
        return found[0] if found else None
    detail = (
        f"Received {len(found)} columns of raters; expected one in a long table. The columns are {listed(table.names)}. "
        "Name it: --raters COLUMN."
    )
    raise InputFileError(table.path, detail, "raters")


def _by_reader(
    table: FileTable,
    items: Sequence[str],
    raters: Sequence[str | None] | None,
    classes: Sequence[int | None],
    ids: Sequence[str],
) -> tuple[list[list[int | None]], list[str]]:
    """Return one column of classes per reader in the order of `ids`, and the readers' names.

    Without names, or for more than `MAX_READERS`, a column has one rating of each row, and no name.
    """
    try:
        labels, who = Annotations(items, classes, raters).by_row(ids)
    except CalibrationInputError as error:
        first = error.violations[0]
        raise InputFileError(table.path, first.detail, first.rule, None, first.row) from error
    names = list(dict.fromkeys(name for row in who for name in row))
    readers = [name for name in names if name is not None]
    if len(readers) < len(names) or not 1 < len(readers) <= MAX_READERS:
        width = max((len(row or ()) for row in labels), default=0)
        return [[_at(row, place) for row in labels] for place in range(width)], []
    given = [dict(zip(by, row or (), strict=True)) for by, row in zip(who, labels, strict=True)]
    return [[row.get(name) for row in given] for name in readers], readers


def _at(row: Sequence[int] | None, place: int) -> int | None:
    return row[place] if row is not None and place < len(row) else None
