"""A block that is never stored densely, for many tables of which each fills few places."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block, Counts, Sums, add_cells


class SparseBlock(Block):
    """A `Block` with sorted places that merges as their union. Arrays are replaced, never written to."""

    __slots__ = ()

    @classmethod
    def of(cls, size: int, places: NDArray[np.int64], counts: Counts, sums: Sums) -> Self:
        """Return the block with these places, in increasing order, and columns. No first count is 0."""
        block = cls(len(counts), len(sums), size)
        block._places, block._counts, block._sums = places, counts, sums
        return block

    @property
    def counts(self) -> Counts:
        """int64 (n_counts, size), to read."""
        places, counts, _ = self.filled()
        result = np.zeros((self.n_counts, self.size), np.int64)
        result[:, places] = counts
        result.setflags(write=False)
        return result

    @property
    def sums(self) -> Sums:
        """float64 (n_sums, size), to read."""
        places, _, sums = self.filled()
        result = np.zeros((self.n_sums, self.size))
        result[:, places] = sums
        result.setflags(write=False)
        return result

    @property
    def n_filled(self) -> int:
        return len(self.filled()[0])

    def merge(self, other: Block) -> None:
        """Add the other's cells to these."""
        self._take(other, 1)

    def subtract(self, other: Block) -> None:
        """Subtract the other's cells, which must be among these. Cells left without a count are dropped."""
        self._take(other, -1)

    def copy(self) -> SparseBlock:
        return SparseBlock.of(self.size, *self.filled())

    def _take(self, other: Block, sign: int) -> None:
        places, counts, sums = add_cells(self.filled(), other.filled(), sign)
        there = counts[0] != 0
        self._places, self._counts, self._sums = places[there], counts[:, there], sums[:, there]
