"""A table of counts and sums over cells that adds and subtracts. Every accumulator consists of blocks.

Counts are int64 and exact; sums are float64. A cell whose first count becomes zero is dropped with its sums, so that
subtraction leaves no rounding residue. A block read from bytes stays sparse until something is added to it. A tight block
stays sparse until it has more cells than sparse storage is good for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError

Counts = NDArray[np.int64]
Sums = NDArray[np.float64]
Cells = tuple[NDArray[np.int64], Counts, Sums]
# A block is made sparse at a sixteenth of its cells, and stays so up to an eighth: two tight blocks always add up sparse,
# and a growing block is not converted back and forth.
TIGHT_SHARE, SPARSE_SHARE = 16, 8


class Block:
    """Counts (n_counts, size) and sums (n_sums, size). A cell is present if its first count is not zero.

    Parameters
    ----------
    n_counts, n_sums, size : int
    depends_on : index of the count that each sum depends on; the first where None. Where that count becomes zero, the sum is
        exactly zero, not the residue of rounding.
    """

    __slots__ = (
        "_addressed",
        "_counts",
        "_is_tight",
        "_places",
        "_sums",
        "depends_on",
        "n_counts",
        "n_sums",
        "size",
    )

    def __init__(
        self, n_counts: int, n_sums: int, size: int, depends_on: tuple[int, ...] | None = None
    ) -> None:
        self.n_counts, self.n_sums, self.size = n_counts, n_sums, size
        self.depends_on = (0,) * n_sums if depends_on is None else depends_on
        self._is_tight = False
        self._places: NDArray[np.int64] | None = np.zeros(0, np.int64)
        self._counts: Counts = np.zeros((n_counts, 0), np.int64)
        self._sums: Sums = np.zeros((n_sums, 0))
        self._addressed: tuple[Counts, Sums, tuple[int, int]] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._counts[0].any()

    @property
    def counts(self) -> Counts:
        """int64 (n_counts, size), to read or to add to."""
        self._spread()
        return self._counts

    @property
    def sums(self) -> Sums:
        """float64 (n_sums, size), to read or to add to."""
        self._spread()
        return self._sums

    @property
    def addresses(self) -> tuple[int, int]:
        """Addresses of the dense counts and sums, for as long as nothing but additions in place happens to the block."""
        known = self._addressed
        if known is None or known[0] is not self._counts or known[1] is not self._sums:
            counts, sums = self.counts, self.sums
            known = self._addressed = (counts, sums, (counts.ctypes.data, sums.ctypes.data))
        return known[2]

    @property
    def is_dense(self) -> bool:
        """Whether every cell has memory, so that adding to it is adding to an array."""
        return self._places is None

    @classmethod
    def of_cells(
        cls,
        size: int,
        places: NDArray[np.int64],
        counts: Counts,
        sums: Sums,
        depends_on: tuple[int, ...] | None = None,
    ) -> Block:
        """Return the block with these cells, in increasing order of their places; it refers to the arrays."""
        block = Block(len(counts), len(sums), size, depends_on)
        block._places, block._counts, block._sums = places, counts, sums
        return block

    def filled(self) -> Cells:
        """Return the places of the cells that are present, sorted, with their counts and sums."""
        if self._places is not None:
            return self._places, self._counts, self._sums
        places = np.flatnonzero(self._counts[0])
        return places, self._counts.take(places, axis=1), self._sums.take(places, axis=1)

    def merge(self, other: Block) -> None:
        """Add the other's cells to these."""
        places, counts, sums = other._places, other._counts, other._sums
        if places is not None and len(places) == 0:
            return
        if self._places is not None and len(self._places) == 0:
            twin = other.copy()
            self._places, self._counts, self._sums = twin._places, twin._counts, twin._sums
            self._is_tight = self._is_tight and self._places is not None
        elif places is not None and self._unite(places, counts, sums):
            return
        elif places is None:
            self.counts.__iadd__(counts)
            self.sums.__iadd__(sums)
        else:
            # Column by column: places are compared once per cell, not once per cell and column.
            for columns, added in ((self.counts, counts), (self.sums, sums)):
                for column, values in zip(columns, added, strict=True):
                    np.add.at(column, places, values)

    def subtract(self, other: Block) -> None:
        """Subtract the other's cells. Cells left without a count are dropped.

        The other's predictions must be among these. A difference with negative counts is not a valid state: a cell whose count a
        later merge brings back to zero would lose its sums.
        """
        places, counts, sums = other.filled()
        self.counts[:, places] -= counts
        self.sums[:, places] -= sums
        self._counts[:, self._counts[0] == 0] = 0
        for column, count in zip(self._sums, self.depends_on, strict=True):
            column[self._counts[count] == 0] = 0.0

    def stored_arrays(self) -> Iterator[NDArray[Any]]:
        """Return every array that it refers to, as stored: dense or sparse."""
        yield self._counts
        yield self._sums
        if self._places is not None:
            yield self._places

    def tighten(self) -> None:
        """Store the cells sparsely where few are filled, also for later additions. Cells that packing drops are dropped.

        A merge of sparse cells takes more time and less memory. Use it for panes that are cached, not for windows.
        """
        if not self._is_tight and TIGHT_SHARE * np.count_nonzero(self._counts[0]) <= self.size:
            self._places, self._counts, self._sums = self.filled()
            self._is_tight, self._addressed = True, None

    def compact(self) -> None:
        """Store the cells sparsely where that takes less memory. A later addition makes them dense again."""
        columns = self.n_counts + self.n_sums
        if (
            self._places is None
            and (1 + columns) * np.count_nonzero(self._counts[0]) < columns * self.size
        ):
            self._places, self._counts, self._sums = self.filled()
            self._addressed = None

    @property
    def max_bytes_stored(self) -> int:
        """Maximum size of its arrays in bytes, with every cell filled."""
        return 8 * (1 + self.n_counts + self.n_sums) * self.size

    def copy(self) -> Block:
        twin = Block(self.n_counts, self.n_sums, self.size, self.depends_on)
        twin._places, twin._counts, twin._sums = self._places, self._counts, self._sums
        if self._places is None:
            twin._counts, twin._sums = self._counts.copy(), self._sums.copy()
        return twin

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the filled cells as named arrays for packing."""
        places, counts, sums = self.filled()
        steps = places.copy()
        steps[1:] -= places[:-1]
        named: dict[str, NDArray[Any]] = {f"{name}.places": steps}
        named |= {f"{name}.count{i}": column for i, column in enumerate(counts)}
        named |= {f"{name}.sum{i}": column for i, column in enumerate(sums)}
        return named

    def read(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the cells that `arrays` wrote.

        Raises
        ------
        PackingError
            The arrays do not fit this block.
        """
        try:
            steps = arrays[f"{name}.places"]
            counts = [arrays[f"{name}.count{i}"] for i in range(self.n_counts)]
            sums = [arrays[f"{name}.sum{i}"] for i in range(self.n_sums)]
        except KeyError as missing:
            raise PackingError(f"Expected column {missing}; the bytes have none.") from missing
        if steps.dtype != np.int64 or steps.ndim != 1 or len(steps) > self.size:
            raise PackingError(f"Received cells of {name} outside its table or out of order.")
        if len(steps) and (steps[0] < 0 or (steps[1:] < 1).any() or (steps > self.size).any()):
            raise PackingError(f"Received cells of {name} outside its table or out of order.")
        places = np.cumsum(steps)
        for column in counts:
            if column.dtype != np.int64 or column.shape != places.shape:
                detail = f"Received counts of {name} of another type or length; expected int64, one per cell."
                raise PackingError(detail)
        for column in sums:
            if (
                column.dtype != np.float64
                or column.shape != places.shape
                or not np.isfinite(column).all()
            ):
                detail = f"Received sums of {name} of another type or length, or not finite; expected float64, one per cell."
                raise PackingError(detail)
        if len(places) and (
            places[0] < 0 or places[-1] >= self.size or (np.diff(places) <= 0).any()
        ):
            raise PackingError(f"Received cells of {name} outside its table or out of order.")
        if (counts[0] == 0).any():
            raise PackingError(f"Received a cell of {name} without a count; leave empty cells out.")
        self._places, self._counts, self._sums = (
            places,
            np.array(counts),
            np.array(sums).reshape(self.n_sums, len(places)),
        )

    def _unite(self, places: NDArray[np.int64], counts: Counts, sums: Sums) -> bool:
        """Add sparse cells and stay sparse. Return False where a dense table must be used instead."""
        if (
            not self._is_tight
            or self._places is None
            or SPARSE_SHARE * (len(self._places) + len(places)) > self.size
        ):
            return False
        united = add_cells((self._places, self._counts, self._sums), (places, counts, sums))
        if not united[1][0].all():
            return False  # the sums of a cell without a count stay until something is subtracted
        self._places, self._counts, self._sums = united
        return True

    def _spread(self) -> None:
        if self._places is None:
            return
        places, counts, sums = self._places, self._counts, self._sums
        self._places, self._is_tight = None, False
        self._counts = np.zeros((self.n_counts, self.size), np.int64)
        self._sums = np.zeros((self.n_sums, self.size))
        self._counts[:, places] = counts
        self._sums[:, places] = sums


def add_cells(own: Cells, added: Cells, sign: int = 1) -> Cells:
    """Unite the cells of both, with sorted places. If the sign is -1, the second are subtracted. Counts may become zero."""
    places = np.union1d(own[0], added[0])
    counts = np.zeros((len(own[1]), len(places)), np.int64)
    sums = np.zeros((len(own[2]), len(places)))
    for at, more_counts, more_sums, times in ((*own, 1), (*added, sign)):
        index = np.searchsorted(places, at)
        counts[:, index] += times * more_counts
        sums[:, index] += times * more_sums
    return places, counts, sums


def close_blocks(mine: Mapping[str, Block], theirs: Mapping[str, Block], rtol: float) -> bool:
    """Compare the cells of an accumulator: the same counts, and sums within the tolerance."""
    return mine.keys() == theirs.keys() and all(
        _close(mine[key].filled(), theirs[key].filled(), rtol) for key in mine
    )


def _close(mine: tuple[Any, Any, Any], theirs: tuple[Any, Any, Any], rtol: float) -> bool:
    if not (np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])):
        return False
    largest = np.abs(mine[2]).max(axis=1, initial=0.0, keepdims=True)
    return bool((np.abs(mine[2] - theirs[2]) <= rtol * largest).all())
