"""Classes that tables name by texts: names, indices, and the numbers in the names of columns.

Numbers in the names of columns are classes: `p1, p2, p3` are the scores of the classes 1, 2 and 3, and a label 1 means the
first of them. They are never counted again from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from calibrant.input.cell_texts import number_of

_TRUTH = {"false": 0, "true": 1}
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


def numbers_of(names: Sequence[str]) -> list[int] | None:
    """Return the numbers at the end of names that are otherwise equal; None for other names.

    Examples
    --------
    >>> numbers_of(["p1", "p2"]), numbers_of(["class_0", "class_10"]), numbers_of(["cat1", "dog2"])
    ([1, 2], [0, 10], None)
    """
    found = [_NUMBERED.fullmatch(name.strip().lower()) for name in names]
    matches = [each for each in found if each is not None]
    if len(matches) < len(names) or len({each[1] for each in matches}) != 1:
        return None
    return [int(each[2]) for each in matches]


def names_of_numbers(numbers: Sequence[int]) -> list[str] | None:
    """Return the names of classes that numbered columns have; None if they are 0, 1, … in this order, which are indices.

    Examples
    --------
    >>> names_of_numbers([1, 2, 3]), names_of_numbers([0, 1])
    (['1', '2', '3'], None)
    """
    return None if list(numbers) == list(range(len(numbers))) else [str(each) for each in numbers]


def has_numbers(classes: Sequence[str]) -> bool:
    """Return whether a name of a class is a whole number: then a label is a name, never an index.

    Examples
    --------
    >>> has_numbers(["1", "2"]), has_numbers(["cat", "dog"])
    (True, False)
    """
    return any(_canonical(name) is not None for name in classes)


def class_places(classes: Sequence[str]) -> dict[str, int]:
    """Return the index of each class by its name, and by the shortest form of a name that is a number."""
    places = {name: place for place, name in enumerate(classes)}
    for place, name in enumerate(classes):
        number = _canonical(name)
        if number is not None:
            places.setdefault(number, place)
    return places


def class_index(
    text: str, places: Mapping[str, int], are_names: bool, n_classes: int | None = None
) -> int | None:
    """Return the class that a text means; None if it is none.

    Parameters
    ----------
    places : of `class_places`
    are_names : whether labels are names only, as `has_numbers` decides
    n_classes : number of classes; of two, truth values are labels

    Examples
    --------
    >>> class_index("2.0", class_places(["1", "2"]), True), class_index("1", class_places(["cat", "dog"]), False)
    (1, 1)
    >>> class_index("0", class_places(["1", "2"]), True) is None
    True
    >>> class_index("True", {}, False, 2), class_index("True", {}, False, 3)
    (1, None)
    """
    if text in places:
        return places[text]
    if n_classes == 2 and not are_names and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    number = _canonical(text)
    if number is None:
        return None
    return places.get(number) if are_names else int(number)


def _canonical(text: str) -> str | None:
    """Return the shortest form of a whole number, None for another text."""
    try:
        value = number_of(text)
    except ValueError:
        return None
    return str(int(value)) if value.is_integer() else None
