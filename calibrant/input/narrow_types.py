"""Types of numbers that numpy has not, as float64, and the name of the type that values had."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Types of ml_dtypes, whose kind is not that of numbers.
_WIDENED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class Bfloat16Values(np.ndarray[Any, Any]):
    """Values of bfloat16 as float64."""


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Return values of a type that numpy has not as float64, exactly; others as they are."""
    if values.dtype.name not in _WIDENED:
        return values
    wide = values.astype(np.float64)
    return wide.view(Bfloat16Values) if values.dtype.name == "bfloat16" else wide


def of_tensor(tensor: Any) -> NDArray[Any]:
    """Return a tensor of torch, from any device and with or without gradients."""
    plain_tensor = tensor.detach().cpu()
    if "bfloat16" not in str(plain_tensor.dtype):
        return np.asarray(plain_tensor)
    return np.asarray(plain_tensor.float()).astype(np.float64).view(Bfloat16Values)


def type_name(column: Any) -> str:
    """Return the name of the type that the values of a column had; empty if it is no array."""
    if isinstance(column, Bfloat16Values):
        return "bfloat16"
    return column.dtype.name if isinstance(column, np.ndarray) else ""
