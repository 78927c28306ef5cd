"""Names of the columns of tables that arguments are: what they say about classes is read.

A table is read by the places of its columns. If their names state other classes, or another order than those of the scores, the result
would be wrong without an error: such tables are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.input.class_texts import names_of_numbers, numbers_of

SCORES = ("probabilities", "logits")
BY_CLASS = ("label_counts", "label_shares")
NAMING = "name the classes: classes=[…]"


def names_of_columns(table: Any) -> list[str]:
    """Return the names of the columns of a table of pandas, polars, pyarrow or DuckDB; none of other values.

    Examples
    --------
    >>> names_of_columns([[0.7, 0.3]])
    []
    """
    for holder, attribute in (
        (table, "column_names"),
        (table, "columns"),
        (getattr(table, "schema", None), "names"),
    ):
        names = getattr(holder, attribute, None)
        if names is not None and not callable(names):
            return [str(name) for name in names]
    return []


def reject_other_columns(given: Mapping[str, Any], are_named: bool, naming: str = NAMING) -> None:
    """Reject tables whose names of columns state other classes than their places.

    Parameters
    ----------
    given : arguments by name
    are_named : whether the classes have names, which labels then are
    naming : how the classes are named, for the error

    Raises
    ------
    CalibrationInputError
        Numbers other than 0, 1, … with labels that would be read as these (`class_number`), or an order other than that of the
        scores (`column_order`).
    """
    for scores in (each for each in SCORES if given.get(each) is not None):
        names = names_of_columns(given[scores])
        if not are_named and given.get("labels") is not None:
            reject_numbers(scores, names, naming)
        for other in BY_CLASS:
            reject_order(other, names_of_columns(given.get(other)), names)


def reject_other_names(scores: str, names: Sequence[str], classes: Sequence[Any] | None) -> None:
    """Reject scores in columns with the names of the classes in another order; numbers in names of columns may be their places."""
    wanted = [str(each) for each in classes or ()]
    found = matched(names, wanted)
    if found in (None, list(names)) or numbers_of(wanted) is not None:
        return
    detail = f"Received columns of {scores} named {', '.join(names[:8])}, and classes {', '.join(wanted[:8])}; expected one order."
    raise CalibrationInputError.at(f"/{scores}", "column_order", detail)


def reject_numbers(scores: str, names: Sequence[str], naming: str = NAMING) -> None:
    """Reject scores in columns that have other numbers than 0, 1 and so on, in this order."""
    numbers = numbers_of(names) if len(names) > 1 else None
    if numbers is None or names_of_numbers(numbers) is None:
        return
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    detail = (
        f"Received columns of {scores} numbered {shown}; expected 0, 1, … in this order. If labels are these numbers, {naming}. "
        "If labels count the columns from 0, rename the columns, or pass an array, such as .to_numpy()."
    )
    raise CalibrationInputError.at(f"/{scores}", "class_number", detail)


def reject_order(name: str, names: Sequence[str], scores: Sequence[str]) -> None:
    """Reject columns that have the names, or the numbers, of those of the scores in another order."""
    if matched(names, scores) in (None, list(names)):
        return
    detail = f"Received the columns {', '.join(names[:8])}; expected them in this order: {', '.join(scores[:8])}."
    raise CalibrationInputError.at(f"/{name}", "column_order", detail)


def matched(columns: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Return columns in the order of the names that they share, by endings or numbers; None if they share no names.

    Examples
    --------
    >>> matched(["label_dog", "label_cat"], ["cat", "dog"]), matched(["s2", "s1"], ["p1", "p2"]), matched(["a", "b"], ["p1", "p2"])
    (['label_cat', 'label_dog'], ['s1', 's2'], None)
    """
    for found, wanted in (
        (_endings(columns), _endings(names)),
        (numbers_of(columns) or [], numbers_of(names) or []),
    ):
        places: dict[Any, str] = dict(zip(found, columns, strict=False))
        if len(columns) == len(names) == len(places) and places.keys() == set(wanted):
            return [places[each] for each in wanted]
    return None


def _endings(names: Sequence[str]) -> list[str]:
    """Return what follows the beginning that all names have, up to a sign such as _."""
    shared = takewhile(lambda signs: len(set(signs)) == 1, zip(*names, strict=False))
    end = max(
        (place + 1 for place, (sign, *_) in enumerate(shared) if not sign.isalnum()), default=0
    )
    return [name[end:] for name in names]
