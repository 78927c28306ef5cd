"""Columns that were read through Arrow: numbers, texts or lists, and which of their values are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of different lengths: list i is `values[offsets[i]:offsets[i + 1]]`, or no list where `null[i]`.

    Attributes
    ----------
    missing : of `values`, those that are null; None without any
    """

    values: NDArray[Any]
    offsets: Ints
    null: Bools
    missing: Bools | None = None

    def __len__(self) -> int:
        return len(self.null)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def as_lists(self) -> list[Any]:
        """Return Python lists, `None` for no list and for a value that is null."""
        values = with_none(self.values, self.missing)
        bounds = self.offsets.tolist()
        return [
            None if null else values[a:b]
            for null, a, b in zip(self.null.tolist(), bounds[:-1], bounds[1:], strict=True)
        ]

    def complete(self) -> Lists:
        """Return the lists without their missing values; a list of nothing else is no list."""
        if self.missing is None:
            return self
        present = ~self.missing
        rows = np.repeat(np.arange(len(self)), self.lengths)
        lengths = np.bincount(rows[present], minlength=len(self))
        null = self.null | ((lengths == 0) & (self.lengths > 0))
        return Lists(self.values[present], np.append(0, np.cumsum(lengths)), null)


@dataclass(frozen=True, eq=False)
class Column:
    """A column that was read through Arrow. What is null holds any value: nothing may be read there.

    Attributes
    ----------
    values : (n,) numbers, texts or datetime64 in UTC; (n, width) numbers or Python objects; or `Lists`
    null : (n,), rows without a value
    cells : of a matrix, (n, width), its values that are null; None without any. Lists have theirs themselves.
    """

    values: NDArray[Any] | Lists
    null: Bools
    cells: Bools | None = None

    def __len__(self) -> int:
        return len(self.null)

    def numbers(self) -> NDArray[Any] | list[Any]:
        """Return a vector or a matrix; lists of different lengths as Python lists, to find the invalid row.

        What is null holds any value; it must be noted apart.
        """
        if not isinstance(self.values, Lists):
            return self.values
        lengths = self.values.lengths[~self.null]
        if (
            not len(lengths)
            or (lengths != lengths[0]).any()
            or self.values.values.dtype.kind not in "fiub"
        ):
            return self.values.as_lists()
        matrix = np.zeros((len(self), int(lengths[0])), self.values.values.dtype)
        matrix[~self.null] = self.values.values[self._inside()].reshape(len(lengths), -1)
        return matrix

    @property
    def unusable(self) -> Bools:
        """Rows that are null or hold a null."""
        if isinstance(self.values, Lists) and self.values.missing is not None:
            rows = np.repeat(np.arange(len(self)), self.values.lengths)[self.values.missing]
            return self.null | (np.bincount(rows, minlength=len(self)) > 0)
        return self.null if self.cells is None else self.null | self.cells.any(axis=1)

    def ratings(self) -> Lists | list[Any]:
        """Return the ratings of each row: as lists of numbers, or as Python objects. A value that is null is no rating."""
        if isinstance(self.values, Lists):
            found = self.values.complete()
            return found if found.values.dtype.kind in "fiub" else found.as_lists()
        return self._matrix().complete() if self.values.dtype.kind in "fiub" else self.as_list()

    def as_list(self) -> list[Any]:
        """Return Python objects, one for each row, None for what is null."""
        if isinstance(self.values, Lists):
            return self.values.as_lists()
        rows = self.values.tolist() if self.cells is None else _rows(self.values, self.cells)
        return [
            None if null else value for null, value in zip(self.null.tolist(), rows, strict=True)
        ]

    def counts(self) -> NDArray[Any] | list[Any]:
        """Return counts of ratings, 0 where one is null or a complete row is: no reader chose the class."""
        if isinstance(self.values, Lists) and self.values.missing is not None:
            values = np.where(self.values.missing, 0, self.values.values)
            return Column(Lists(values, self.values.offsets, self.null), self.null).counts()
        found = self.numbers()
        if isinstance(found, list) or found.ndim != 2:
            return found
        missing = self.null[:, None] if self.cells is None else self.null[:, None] | self.cells
        return np.where(missing, np.zeros((), found.dtype), found)

    def _matrix(self) -> Lists:
        """Return a vector or a matrix as lists, those of a null row empty."""
        assert not isinstance(self.values, Lists)
        width = 1 if self.values.ndim == 1 else self.values.shape[1]
        lengths = np.where(self.null, 0, width)
        missing = None if self.cells is None else self.cells[~self.null].reshape(-1)
        values = self.values[~self.null].reshape(-1)
        return Lists(values, np.append(0, np.cumsum(lengths)), self.null, missing)

    def _inside(self) -> Bools:
        """Mark the values of lists whose row is not null."""
        assert isinstance(self.values, Lists)
        return np.repeat(~self.null, self.values.lengths)


def with_none(values: NDArray[Any], missing: Bools | None) -> list[Any]:
    """Return Python objects, None where a value is missing."""
    if missing is None:
        return list(values.tolist())
    return [
        None if is_missing else value
        for is_missing, value in zip(missing.tolist(), values.tolist(), strict=True)
    ]


def _rows(values: NDArray[Any], cells: Bools) -> list[list[Any]]:
    return [with_none(*row) for row in zip(values, cells, strict=True)]
