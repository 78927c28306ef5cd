"""Labels of a long table: one rating per line, with the item and the rater."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant.cli.input_files.columns import Files
from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.labels import KnownClasses, class_indices
from calibrant.cli.input_files.roles import is_rater, label_of, listed, named
from calibrant.cli.input_files.tables import FileTable
from calibrant.core.errors import CalibrationInputError
from calibrant.input.annotations import Annotations

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
