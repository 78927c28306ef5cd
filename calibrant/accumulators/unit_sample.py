"""A bounded sample of named units with each one's number of batches, to estimate how many units were split between batches.

A unit counts as one only if it is complete in one batch. Sums cannot show whether clients comply, and storing every unit's name
would grow with the data. Therefore unit hashes below a threshold are stored. The threshold is halved until the sample fits, and
never rises. Which units are sampled depends only on their names, so samples merge in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.core.arrays import Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.hashing import U64
from calibrant.core.packing import PackingError, pack
from calibrant.core.spec import PaneSpec

MAX_HASHES = 1024
MAX_HALVINGS = 63


class UnitSample(Accumulator):
    """Hashes of labelled units below 2^(64 - halvings), sorted, and the number of batches of each.

    Empty where predictions name neither units nor cases. After a subtraction the threshold stays where it was, so the sample can be
    smaller than that of the remaining batches alone. What it reports remains true.

    Attributes
    ----------
    hashes : uint64 (n,), increasing
    batches : int64 (n,), batches in which each unit had labelled predictions
    halvings : how often the threshold was halved
    """

    name = "unit_sample"

    def __init__(self, spec: PaneSpec) -> None:
        super().__init__(spec)
        self.hashes: U64 = np.zeros(0, np.uint64)
        self.batches: Ints = np.zeros(0, np.int64)
        self.halvings = 0

    @classmethod
    def concerns(cls, batch: Batch) -> bool:
        return batch.has_units

    def shares(self) -> dict[str, tuple[float, str]]:
        n = sum(self.batches.tolist()) if (self.batches > 0).all() else np.inf
        return {"batches": (n, "n_units")}

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.has_units or not batch_sums.n:
            return
        # One key per unit and batch: stored rows of several batches are filled together.
        first = np.unique(batch_sums.batch.unit_key, return_index=True)[1]
        hashes, batches = np.unique(batch_sums.batch.unit_hash[first], return_counts=True)
        self._add(hashes, batches.astype(np.int64))

    @property
    def is_empty(self) -> bool:
        return len(self.hashes) == 0

    def stored_arrays(self) -> Iterator[NDArray[Any]]:
        yield from (self.hashes, self.batches)

    @property
    def split(self) -> dict[str, int | bool]:
        """Units that were in more than one batch: `n`, and whether that is `estimated` from a part of the units."""
        in_sample = int((self.batches > 1).sum())
        return {"n": in_sample << self.halvings, "estimated": self.halvings > 0}

    def merge(self, other: Accumulator) -> None:
        assert isinstance(other, UnitSample)
        self.halvings = max(self.halvings, other.halvings)
        self._add(other.hashes, other.batches)

    def subtract(self, other: Accumulator) -> None:
        """Subtract the other's batches. Units that were in no other batch are dropped."""
        assert isinstance(other, UnitSample)
        self.halvings = max(self.halvings, other.halvings)
        self._add(other.hashes, -other.batches)

    def copy(self) -> Self:
        twin = type(self)(self.spec)
        twin.hashes, twin.batches, twin.halvings = self.hashes, self.batches, self.halvings
        return twin

    def pack(self) -> bytes:
        arrays = {"hashes": self.hashes, "batches": self.batches}
        return pack(arrays, self._described() | {"halvings": self.halvings})

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        arrays, about = cls._own_arrays(spec, data, 16 * MAX_HASHES)
        unpacked = cls(spec)
        try:
            unpacked.hashes, unpacked.batches, unpacked.halvings = (
                arrays["hashes"],
                arrays["batches"],
                about["halvings"],
            )
        except KeyError as missing:
            detail = (
                f"Received a unit sample without {missing}; expected hashes, batches and halvings."
            )
            raise PackingError(detail) from missing
        if not unpacked._is_sound():
            detail = "Received a unit sample that is not valid; expected sorted hashes below its threshold, with batches."
            raise PackingError(detail)
        return unpacked

    def _is_sound(self) -> bool:
        hashes, batches = self.hashes, self.batches
        if (
            hashes.dtype != np.uint64
            or batches.dtype != np.int64
            or hashes.ndim != 1
            or hashes.shape != batches.shape
        ):
            return False
        if type(self.halvings) is not int or not 0 <= self.halvings <= MAX_HALVINGS:
            return False
        return bool(
            (hashes[1:] > hashes[:-1]).all()
            and self._is_below(hashes).all()
            and (batches != 0).all()
        )

    def _is_below(self, hashes: U64) -> NDArray[np.bool_]:
        return np.asarray(hashes <= np.uint64((1 << (64 - self.halvings)) - 1))

    def _add(self, hashes: U64, batches: Ints) -> None:
        """Add batches to units, drop units without batches, and lower the threshold until the rest fits."""
        both, index = np.unique(np.concatenate([self.hashes, hashes]), return_inverse=True)
        total = np.zeros(len(both), np.int64)
        np.add.at(total, index, np.concatenate([self.batches, batches]))
        keep = (total != 0) & self._is_below(both)
        while int(keep.sum()) > MAX_HASHES:
            self.halvings += 1
            keep &= self._is_below(both)
        self.hashes, self.batches = both[keep], total[keep]


ACCUMULATOR = UnitSample
