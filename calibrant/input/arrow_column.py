"""Columns that were read through Arrow: numbers, texts or lists, and which rows have no value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of different lengths: list i is `values[offsets[i]:offsets[i + 1]]`, or no list where `null[i]`."""

    values: NDArray[Any]
    offsets: Ints
    null: Bools

    def __len__(self) -> int:
        return len(self.null)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def as_lists(self) -> list[Any]:
        """Return Python lists, `None` for no list."""
        values = self.values.tolist()
        bounds = self.offsets.tolist()
        return [
            None if null else values[a:b]
            for null, a, b in zip(self.null.tolist(), bounds[:-1], bounds[1:], strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Column:
    """A column that was read through Arrow.

    Attributes
    ----------
    values : (n,) numbers, texts or datetime64 in UTC; (n, width) numbers; or `Lists`
    null : (n,), rows without a value; `values` has any value there
    broken : (n,), rows with a list in which an element is null
    """

    values: NDArray[Any] | Lists
    null: Bools
    broken: Bools | None = None

    def __len__(self) -> int:
        return len(self.null)

    def numbers(self) -> NDArray[Any] | list[Any]:
        """Return a vector or a matrix; lists of different lengths as Python lists, to find the invalid row.

        A null row may hold anything; it must be noted apart.
        """
        if not isinstance(self.values, Lists):
            return self.values
        lengths = self.values.lengths[~self.null]
        if (
            not len(lengths)
            or (lengths != lengths[0]).any()
            or self.values.values.dtype.kind not in "fiu"
        ):
            return self.values.as_lists()
        matrix = np.zeros((len(self), int(lengths[0])), self.values.values.dtype)
        matrix[~self.null] = self.values.values[self._inside()].reshape(len(lengths), -1)
        return matrix

    @property
    def unusable(self) -> Bools:
        """Rows that are null or hold a null."""
        return self.null if self.broken is None else self.null | self.broken

    def ratings(self) -> Lists | list[Any]:
        """Return the ratings of each row, where null means no label yet: as lists of integers, or as Python objects."""
        values = self.values
        if isinstance(values, Lists):
            return values if values.values.dtype.kind in "iu" else values.as_lists()
        if values.dtype.kind in "iu":
            width = 1 if values.ndim == 1 else values.shape[1]
            lengths = np.where(self.null, 0, width)
            return Lists(
                values[~self.null].reshape(-1), np.append(0, np.cumsum(lengths)), self.null
            )
        return [
            None if null else value
            for null, value in zip(self.null.tolist(), values.tolist(), strict=True)
        ]

    def _inside(self) -> Bools:
        """Mark the values of lists whose row is not null."""
        assert isinstance(self.values, Lists)
        return np.repeat(~self.null, self.values.lengths)
