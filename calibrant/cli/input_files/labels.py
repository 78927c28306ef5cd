"""Labels as class indices: numbers, or names of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.roles import listed
from calibrant.cli.input_files.tables import FileTable
from calibrant.input.number_text import number_of


def class_indices(
    columns: list[list[str | None]],
    classes: list[str] | None,
    table: FileTable,
    label: str | None,
    raters: list[str],
) -> Any:
    """Return class indices: an array for one label per row, lists for several raters; None where there is no rating.

    Raises
    ------
    InputFileError
        A label is neither a class index nor the name of a class.
    """
    places = {name: place for place, name in enumerate(classes or ())}
    found: list[list[int | None]] = []
    names: list[str | None] = [*raters] if raters else [label]
    for text_column, name in zip(columns, names, strict=True):
        known: dict[str | None, int | None] = {None: None}
        for row, text in enumerate(text_column):
            if text not in known:
                known[text] = _class_index(str(text), places, table, name, row)
        found.append([known[text] for text in text_column])
    if len(found) == 1:
        (single,) = found
        return single if None in single else np.array(single, np.int64)
    ratings = [[each for each in row if each is not None] for row in zip(*found, strict=True)]
    return [row or None for row in ratings]


def _class_index(
    text: str, places: dict[str, int], table: FileTable, name: str | None, row: int
) -> int:
    if text in places:
        return places[text]
    try:
        value = number_of(text)
    except ValueError:
        value = float("nan")
    if value.is_integer():
        return int(value)
    expected = (
        f"one of {listed(list(places))} or an index" if places else "the index of a class, from 0"
    )
    detail = f"Received {text[:60]!r}; expected {expected}."
    if not places:
        detail += " For names, pass --classes NAME,NAME,..."
    raise InputFileError(table.path, detail, "class", name, row, table.line(row))
