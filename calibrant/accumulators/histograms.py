"""Plain histograms as received: one table for each kind, class, policy and edge convention.

Only equal-width binned metrics of the same kind, class, policy and edge convention read them.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import MASS, BlockColumns, in_cell, within
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.histogram import Histogram, is_key
from calibrant.core.histogram_fields import grid_cells
from calibrant.core.label_policies import POLICIES
from calibrant.core.packing import PackingError, pack
from calibrant.core.spec import PaneSpec

COUNTS = ("updates", "n_predictions", "without_n_predictions", "n_units")
RANGES = {"count": MASS, "sum_confidence": in_cell("count"), "sum_correct": within("count")}


class Histograms(Accumulator):
    """Blocks by `Histogram.key`. A cell is present if its `updates` are not zero.

    `n_predictions` is stored where clients sent it; `without_n_predictions` counts updates that did not.
    """

    name = "histograms"

    @classmethod
    def concerns(cls, batch: Batch) -> bool:
        return False

    def fill(self, batch_sums: BatchSums) -> None:
        """Do nothing: predictions go to other accumulators."""

    def ranges(self) -> dict[str, BlockColumns]:
        return {key: self._columns(key) for key in self.blocks}

    def add(self, histogram: Histogram) -> None:
        """Add a histogram's numbers, or subtract them if it is `negated`."""
        sign = -1 if histogram.is_negated else 1
        empty = self._block(histogram.key)
        table, numbers = histogram.on_grid(empty.size)
        place = np.arange(empty.size)
        filled = (
            (table != 0).any(axis=0)
            if numbers is None
            else (table != 0).any(axis=0) | (numbers != 0)
        )
        place = place[filled]
        update = self._block(histogram.key)
        update.counts[0, place] = 1
        if numbers is not None:
            update.counts[1] = sign * numbers
        update.counts[2, place] = numbers is None
        if len(place):
            update.counts[3, place[0]] = histogram.units_named
        update.sums[:] = sign * table
        own = self.blocks.setdefault(histogram.key, empty)
        own.merge(update) if sign > 0 else own.subtract(update)

    def merge(self, other: Accumulator) -> None:
        for key, block in other.blocks.items():
            self.blocks.setdefault(key, self._block(key)).merge(block)

    def subtract(self, other: Accumulator) -> None:
        for key, block in other.blocks.items():
            own = self.blocks.setdefault(key, self._block(key))
            own.subtract(block)
            if own.is_empty:
                del self.blocks[key]

    def tighten(self) -> None:
        """Leave the tables as they are: the sums of a cell whose updates cancel must stay until the next is added."""

    def table(self, key: str) -> Floats:
        """Return count and sums of a key on the model's grid, float64 (3, cells); zeros where there is none."""
        return self.blocks[key].sums if key in self.blocks else self._block(key).sums

    def weight(self, key: str) -> float:
        """Return the total count of a key."""
        return float(self.blocks[key].filled()[2][0].sum()) if key in self.blocks else 0.0

    def n_predictions(self, key: str) -> int | None:
        """Return the number of predictions of a key: as stated, or the count itself for policies with weight one per prediction."""
        if key not in self.blocks:
            return 0
        counts, sums = self.blocks[key].filled()[1:]
        if not counts[2].any():
            return int(counts[1].sum())
        return None if key.split("|")[2] == "pooled" else round(float(sums[0].sum()))

    def uncovered(self, key: str, other: str) -> float:
        """Return the predictions (or weight) of `other` that `key` does not cover."""
        if other == key:
            return 0.0
        own_policy, other_policy = key.split("|")[2], other.split("|")[2]
        if own_policy == other_policy:
            short = self.weight(other) - self.weight(key)
            return short if short > 1e-9 * self.weight(other) else 0.0
        mine, theirs = self.n_predictions(key), self.n_predictions(other)
        if mine is None or theirs is None:
            return float(self.weight(other))
        return float(max(theirs - mine, 0))

    def pack(self) -> bytes:
        arrays: dict[str, NDArray[Any]] = {}
        keys = sorted(key for key, block in self.blocks.items() if not block.is_empty)
        for i, key in enumerate(keys):
            arrays |= self.blocks[key].arrays(str(i))
        return pack(arrays, self._described() | {"keys": keys})

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        unpacked = cls(spec)
        arrays, about = cls._own_arrays(spec, data, unpacked._max_bytes_stored)
        keys = about.get("keys")
        if not isinstance(keys, list):
            raise PackingError("Received histograms without their list of keys.")
        for i, key in enumerate(keys):
            if not is_key(key, spec) or key in unpacked.blocks:
                detail = f"Received histogram key {str(key)[:60]!r}; this model has none, or it is repeated."
                raise PackingError(detail)
            block = unpacked._block(key)
            block.read(str(i), arrays)
            unpacked.blocks[key] = block
        return unpacked

    @property
    def _max_bytes_stored(self) -> int:
        """Maximum size of the arrays of every kind, class, policy and edge convention."""
        kinds = ["top_label", "positive", "uncertainty", *["class"] * self.spec.n_classes]
        return sum(self._block(kind).max_bytes_stored for kind in kinds) * len(POLICIES) * 2

    def _block(self, key: str) -> Block:
        return self._columns(key).block()

    def _columns(self, key: str) -> BlockColumns:
        cells = grid_cells(key.partition("|")[0], self.spec)
        return BlockColumns(COUNTS, RANGES, cells, edges=cells)


ACCUMULATOR = Histograms
