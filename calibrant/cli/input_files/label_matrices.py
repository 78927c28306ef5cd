"""Columns of labels that are numbers, one per class or event: shares of the classes, or 0 and 1 of independent events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.columns import Files
from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.labels import KnownClasses, class_indices
from calibrant.cli.input_files.roles import ColumnRoles, classes_of, listed, named
from calibrant.input.class_texts import numbers_of
from calibrant.input.table_names import matched

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
