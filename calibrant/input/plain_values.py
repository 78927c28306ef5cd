"""Values as a request brings them, before they are columns: which are numbers, and what they are as arrays."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = frozenset({int, float})


def all_numbers(values: list[Any]) -> bool:
    """Whether all are numbers; numpy's own scalars are, booleans are not."""
    return _NUMBERS.issuperset(map(type, values)) or all(
        isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        for value in values
    )


def is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def has_bools(rows: Any) -> bool:
    """Whether a list of rows holds booleans, which numpy reads as 1 and 0 among whole numbers."""
    return isinstance(rows, list) and not {bool, np.bool_}.isdisjoint(
        map(type, chain.from_iterable(rows))
    )


def as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def as_array(column: Any) -> NDArray[Any] | None:
    """A numeric array, or None where the values are ragged or not all numbers."""
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
