"""Rows of committed batches, filled again: a batch with hashes instead of names.

A unit's rows share one weight within their batch. Rows of several batches can be filled together, because each row carries
the number of its batch: a unit that occurs in two of them has two keys and counts twice, as if each batch were filled alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns
from calibrant.core.hashing import U64, mix


@dataclass(frozen=True, eq=False)
class HashedBatch(Batch):
    """Predictions of which only the hashes of their names are known.

    Attributes
    ----------
    hashes, unit_hashes : uint64 (n,), of the predictions and their units as sent
    """

    hashes: U64 | None = None
    unit_hashes: U64 | None = None

    @property
    def prediction_hash(self) -> U64:
        assert self.hashes is not None
        return self.hashes

    @property
    def unit_hash(self) -> U64:
        assert self.unit_hashes is not None
        return self.unit_hashes

    def _selected(self, index: slice | NDArray[np.int64], ratings: Ratings) -> Self:
        columns: Columns = {name: getattr(self, name)[index] for name in ("hashes", "unit_hashes")}
        return replace(super()._selected(index, ratings), **columns)


@dataclass(frozen=True, eq=False)
class StoredBatch(HashedBatch):
    """Predictions of one or more committed batches.

    Attributes
    ----------
    source : origin of the units, as `Batch.unit_source`
    parts : int64 (n,), number of the batch in which each row was committed

    Examples
    --------
    >>> one = Batch.from_columns({"confidences": [0.9, 0.2], "labels": [1, 0], "units": ["a", "a"]}).batch
    >>> StoredBatch.of(one, np.array([0, 0])).unit_key.tolist() == [one.unit_hash[0]] * 2
    True
    >>> len(set(StoredBatch.of(one, np.array([0, 1])).unit_key.tolist()))
    2
    """

    source: str = "row"
    parts: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, batch: Batch, parts: NDArray[np.int64]) -> StoredBatch:
        """Return a batch with its hashes and these batch numbers."""
        return cls(
            batch.task, batch.scores, batch.is_logits, batch.ratings, batch.weights, cases=batch.cases, delays=batch.delays,
            edge_rules=batch.edge_rules, hashes=batch.prediction_hash, unit_hashes=batch.unit_hash, source=batch.unit_source, parts=parts,
        )  # fmt: skip

    @property
    def unit_source(self) -> str:
        """Origin of units, as it was committed."""
        return self.source

    @cached_property
    def unit_key(self) -> U64:
        """Key of the unit of each row in its batch; uint64 (n,)."""
        assert self.parts is not None
        if not self.n or (self.parts == self.parts[0]).all():
            return self.unit_hash
        return mix(self.unit_hash ^ mix(self.parts.astype(np.uint64)))

    def _selected(self, index: slice | NDArray[np.int64], ratings: Ratings) -> Self:
        assert self.parts is not None
        return replace(super()._selected(index, ratings), parts=self.parts[index])
