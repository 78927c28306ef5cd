"""Values of a request before they are columns: whether they are numbers, and their conversion to arrays."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = frozenset({int, float})


def all_numbers(values: list[Any]) -> bool:
    """Return whether all are numbers. numpy's scalars are; booleans are not."""
    return _NUMBERS.issuperset(map(type, values)) or all(
        isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        for value in values
    )


def is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def has_bools(rows: Any) -> bool:
    """Return whether a list of rows contains booleans, which numpy reads as 1 and 0 among integers."""
    return isinstance(rows, list) and not {bool, np.bool_}.isdisjoint(
        map(type, chain.from_iterable(rows))
    )


def as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def as_array(column: Any) -> NDArray[Any] | None:
    """Return a numeric array, or None where the values are ragged or not all numbers."""
    try:
        array = np.asarray(column)
    except (ValueError, OverflowError, TypeError):
        return None
    return None if array.dtype == object else array


def as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf
