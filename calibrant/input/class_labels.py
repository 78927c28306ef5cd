"""What a label may be: the index of a class, its name, or nothing yet. One rule for lists, arrays and tables.

A whole number of any type is an index, because a table with missing labels holds its integers as floats. A truth value is
one where there are two classes. None, NaN, null and what `ignore_label` names are no rating.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.class_texts import has_numbers
from calibrant.input.value_checks import as_sequence, kind_of

# Of a text and of the names of classes in an error.
MAX_SHOWN = 40
MAX_NAMES = 8
MAX_CLASS_NAME = 200
CLASS_NAME_RULE = f"1 to {MAX_CLASS_NAME} characters without control characters and line breaks"
_NOT_IN_NAMES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Classes of integers that stand for no rating and for a value that is no class.
NO_RATING = -(2**62)
NO_CLASS = NO_RATING + 1
# Of pandas, which is not imported.
_MISSING_TYPES = ("NAType", "NaTType")
_SCALARS = (str, int, float, np.generic)


class ClassLabels:
    """The classes of a model, as labels state them.

    Parameters
    ----------
    n_classes : number of classes
    names : of the classes, in their order; None for labels that are indices. If they are integers, truth values, or texts of which
        one is a whole number, labels are names and no indices.
    ignored : values that are no rating
    """

    def __init__(
        self, n_classes: int, names: Sequence[Any] | None = None, ignored: Iterable[Any] = ()
    ) -> None:
        self.n_classes = n_classes
        self.index: Mapping[Any, int] = {name: i for i, name in enumerate(names or ())}
        self.ignored = list(ignored)
        texts = [name for name in self.index if isinstance(name, str)]
        self.are_numbers = len(texts) < len(self.index) or has_numbers(texts)

    def class_of(self, value: Any) -> int:
        """Return the class that a label states, `NO_RATING` or `NO_CLASS`; an index may be out of range."""
        if is_missing(value) or self._is_ignored(value):
            return NO_RATING
        if isinstance(value, str) or self.are_numbers:
            return self._named(value) if isinstance(value, _SCALARS) else NO_CLASS
        if isinstance(value, bool | np.bool_):
            return int(value) if self.n_classes == 2 else NO_CLASS
        if isinstance(value, int | np.integer):
            return min(max(int(value), -1), self.n_classes)
        if isinstance(value, float | np.floating) and float(value).is_integer():
            return int(min(max(value, -1.0), self.n_classes))
        return NO_CLASS

    def _named(self, value: Any) -> int:
        """Return the class with this name; the name of a whole number is its decimal text, too."""
        found = self.index.get(value, NO_CLASS)
        if found != NO_CLASS or isinstance(value, str | bool | np.bool_):
            return found
        return self.index.get(f"{value:.0f}", NO_CLASS) if value == value // 1 else NO_CLASS

    def classes_of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return `class_of` each number of an array (n,) of floats, integers or truth values."""
        if self.are_numbers or (values.dtype.kind == "b" and self.n_classes != 2):
            distinct, place = np.unique(values, return_inverse=True)
            return np.array([self.class_of(each) for each in distinct.tolist()], np.int64)[place]
        found = _bounded(values, self.n_classes)
        for each in self.ignored:
            if isinstance(each, int | float | np.number):
                found[values == each] = NO_RATING
        return found

    def _is_ignored(self, value: Any) -> bool:
        return bool(self.ignored) and isinstance(value, _SCALARS) and value in self.ignored

    def violation(self, value: Any) -> tuple[str, str]:
        """Return rule and detail of a value that is no class, or none of these."""
        if isinstance(value, np.generic):
            value = value.item()
        if self._is_index(value):
            return "class_range", self._out_of_range(value)
        return "class_index", self._no_class(value)

    def _is_index(self, value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and not self.are_numbers and float_is_whole(value)

    def _out_of_range(self, value: float) -> str:
        shown = str(int(value)) if abs(value) < 2**63 else "beyond 64 bits"
        detail = f"Received class {shown}; expected an integer from 0 to {self.n_classes - 1}."
        if value < 0 or value == 255:
            return f"{detail} If it means that there is no label, pass ignore_label={shown}."
        return f"{detail} Classes count from 0. Correct the label."

    def _no_class(self, value: Any) -> str:
        if self.index:
            some = ", ".join(repr(name) for name in list(self.index)[:MAX_NAMES])
            more = ", ..." if len(self.index) > MAX_NAMES else ""
            return f"Received class {_shown(value)}; expected a class of this model: {some}{more}. Correct the label."
        detail = f"Received {_shown(value)}, which is not a class"
        if isinstance(value, bool):
            return f"{detail} of {self.n_classes}: true and false are labels of two classes. Pass integers."
        if isinstance(value, str):
            naming = (
                "name the classes: classes=; of a model of the service, PATCH its setting classes."
            )
            return f"{detail}; expected a class index, an integer. Correct the label, or {naming}"
        return f"{detail}; expected a class index, an integer. Correct the label."


def _shown(value: Any) -> str:
    """Return a label for an error; of what is no text and no number, its type, because it may be large."""
    kind = type(value).__name__
    if isinstance(value, str):
        return f"{value[:MAX_SHOWN]!r} ({kind})"
    if isinstance(value, int) and abs(value) >= 2**63:
        return "an integer beyond 64 bits"
    return f"{value!r} ({kind})" if isinstance(value, int | float) else kind_of(value)


def float_is_whole(value: float) -> bool:
    return isinstance(value, int) or value.is_integer()


def is_missing(value: Any) -> bool:
    """Return whether a value says that there is none: None, NaN, or what pandas has for them.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing(0), is_missing("nan")
    (True, True, False, False)
    """
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return type(value).__name__ in _MISSING_TYPES


def names_of_classes(classes: Any) -> list[Any] | None:
    """Return the names of classes of any sequence as plain values; None for none.

    Raises
    ------
    CalibrationInputError
        Not a sequence, names of several or other types, a name twice, or a text that cannot be one.

    Examples
    --------
    >>> names_of_classes(np.array(["cat", "dog"])), names_of_classes([False, True])
    (['cat', 'dog'], [False, True])
    """
    if classes is None:
        return None
    names = as_sequence(classes)
    if names is None:
        detail = f"Received {type(classes).__name__} as names of classes; expected a list or array of texts or integers."
        raise CalibrationInputError.at("/classes", "list", detail)
    kinds = {type(name) for name in names}
    if not (kinds <= {str} or kinds <= {int} or kinds <= {bool}):
        names = _whole(names)
    if len(set(names)) < len(names):
        detail = "Received a name of a class more than once; expected each name once."
        raise CalibrationInputError.at("/classes", "repeated_class", detail)
    reject_class_names([str(name) for name in names])
    return names


def is_class_name(text: str) -> bool:
    r"""Return whether a text can name a class: a figure's XML and a table's cell must be able to contain it.

    Examples
    --------
    >>> is_class_name("cat 2"), is_class_name(""), is_class_name("cat\n")
    (True, False, False)
    """
    return 1 <= len(text) <= MAX_CLASS_NAME and not any(
        category(letter) in _NOT_IN_NAMES for letter in text
    )


def reject_class_names(names: Sequence[str]) -> None:
    """Reject the first text that cannot name a class; it is not quoted, because a terminal could obey it."""
    for place, name in enumerate(names):
        if not is_class_name(name):
            detail = (
                f"Received another text as name {place} of the classes; expected {CLASS_NAME_RULE}."
            )
            raise CalibrationInputError.at("/classes", "class_name", detail)


def _whole(names: list[Any]) -> list[int]:
    """Return floats that are whole, as a classifier has them that was fitted to such labels."""
    if all(type(name) in (int, float) and float_is_whole(name) for name in names):
        return [int(name) for name in names]
    kinds = ", ".join(sorted({type(name).__name__ for name in names}))
    detail = f"Received names of classes of type {kinds}; expected all texts, or all integers."
    raise CalibrationInputError.at("/classes", "list", detail)


def _bounded(values: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """Return the classes that numbers state, those out of range as -1 or `n_classes`."""
    if values.dtype.kind == "u":
        return np.minimum(values.astype(np.uint64), np.uint64(n_classes)).astype(np.int64)
    if values.dtype.kind in "ib":
        return np.clip(values.astype(np.int64), -1, n_classes)
    missing = np.isnan(values)
    whole = np.where(missing, 0.0, np.clip(np.nan_to_num(values, nan=0.0), -1.0, n_classes))
    found = whole.astype(np.int64)
    found[(whole != np.floor(whole)) | np.isinf(values)] = NO_CLASS
    found[missing] = NO_RATING
    return found
