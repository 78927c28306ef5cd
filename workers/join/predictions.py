"""Predictions as records store them, as columns over their bytes; scores and names are read where they are needed.

A prediction never changes, but its record does with every label. Its bytes are therefore copied as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant_server.workers.join.record_format import (
    CASE,
    DIVIDED,
    LOGITS,
    LONG_NAMES,
    NARROW,
    NUMBER,
    PLAIN,
    PREDICTION,
    RULE_FLAG_BIT,
    SLICED,
    UNIT,
    WEIGHTED,
    RecordError,
    with_rules,
)
from calibrant_server.workers.join.row_names import RowNames
from calibrant_server.workers.segments.ragged import Bytes, Ints, starts_of, table_at
from calibrant_server.workers.segments.scores import Scores, StoredScores

Mask = NDArray[np.bool_]
_TEXTS = UNIT | CASE | SLICED
_DESCRIBED = LOGITS | NARROW | WEIGHTED | _TEXTS


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions over the bytes in which they are stored.

    Attributes
    ----------
    data : uint8, bytes of many records
    start, n_bytes : int64 (n,), where each prediction is
    flags : int64 (n,), of a record's head, with the rule of edges above them
    is_divided : bool (n,); the scores are followed by their sum
    is_long : bool (n,); the lengths of its names have two bytes
    n_scores, n_slices : int64 (n,)
    event_us : int64 (n,), microseconds since the epoch
    sent : uint64 (n,), digest of what was sent
    """

    data: Bytes
    start: Ints
    n_bytes: Ints
    flags: Ints
    is_divided: Mask
    is_long: Mask
    n_scores: Ints
    n_slices: Ints
    event_us: Ints
    sent: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def read(cls, data: Bytes, start: Ints, end: Ints, heads: NDArray[np.void]) -> Predictions:
        """Return the predictions of records with these heads, each to the end of its record.

        Raises
        ------
        RecordError, IndexError
            A record is too short.
        """
        fixed = table_at(data, start, PREDICTION)
        found = cls(
            data,
            start,
            end - start,
            with_rules(
                heads["flags"].astype(np.int64) & _DESCRIBED, heads["format"].astype(np.int64)
            ),
            _differs(heads, DIVIDED),
            _differs(heads, LONG_NAMES),
            heads["n_scores"].astype(np.int64),
            heads["n_slices"].astype(np.int64),
            fixed["event_us"].astype(np.int64),
            fixed["sent"].copy(),
        )
        if (found.names_at > end).any():
            raise RecordError("received a record that is too short")
        return found

    def take(self, index: Ints) -> Predictions:
        """Return some predictions over the same bytes."""
        found = Predictions(self.data, *(getattr(self, name)[index] for name in _COLUMNS))
        found.__dict__["_origin"] = (self, index)
        return found

    @classmethod
    def together(cls, parts: Sequence[Predictions]) -> Predictions:
        """Concatenate predictions over one array of their bytes."""
        if len(parts) == 1:
            return parts[0]
        first = starts_of(np.array([len(each.data) for each in parts]))
        starts = [each.start + at for each, at in zip(parts, first.tolist(), strict=True)]
        rest = (np.concatenate([getattr(each, name) for each in parts]) for name in _COLUMNS[1:])
        data = np.concatenate([each.data for each in parts])
        return cls(data, np.concatenate(starts), *rest)

    @property
    def is_logits(self) -> Mask:
        """Which scores are logits."""
        return (self.flags & LOGITS).astype(np.bool_)

    @property
    def is_narrow(self) -> Mask:
        """Which scores take four bytes."""
        return (self.flags & NARROW).astype(np.bool_)

    @property
    def edge_rules(self) -> NDArray[np.uint8]:
        """Rules by which scores are on an edge of bins (`calibrant.core.edge_rules`)."""
        return (self.flags >> RULE_FLAG_BIT).astype(np.uint8)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Weights, float64 (n,); nan for none."""
        found = np.full(len(self), np.nan)
        own = np.flatnonzero(self.flags & WEIGHTED)
        found[own] = table_at(self.data, self.weight_at[own], NUMBER)
        return found

    @cached_property
    def scores(self) -> Scores:
        """Scores as they are stored.

        Raises
        ------
        ValueError
            Rows have different numbers of scores, or are divided by a number that is no sum of probabilities.
        """
        sizes = np.unique(self.n_scores)
        if len(sizes) > 1:
            raise ValueError(f"received rows of {' and '.join(map(str, sizes.tolist()))} scores")
        n_scores = int(sizes[0]) if len(sizes) else 0
        narrow = self._table(np.flatnonzero(self.is_narrow), np.dtype(("<f4", (n_scores,))))
        wide = self._table(np.flatnonzero(~self.is_narrow), np.dtype(("<f8", (n_scores,))))
        stored = StoredScores(self.is_narrow, self._totals(), narrow, wide)
        return Scores(self.is_logits, None, stored)

    @cached_property
    def names(self) -> RowNames:
        """Unit, case and slices of each prediction; those of selected ones are read once.

        Raises
        ------
        RecordError
            A record is too short.
        """
        origin: tuple[Predictions, Ints] | None = self.__dict__.get("_origin")
        if origin is not None:
            return origin[0].names.take(origin[1])
        if not (self.flags & _TEXTS).any():
            return RowNames.none(len(self))
        ends = self.start + self.n_bytes
        data, widths = self.data.tobytes(), 1 + self.is_long
        return RowNames.read(data, self.names_at, ends, self.flags, self.n_slices, widths)

    @property
    def sum_at(self) -> Ints:
        """Where the sum of each is, if it has one."""
        return self.start + PREDICTION.itemsize + self.n_scores * np.where(self.is_narrow, 4, 8)

    @property
    def weight_at(self) -> Ints:
        """Where the weight of each is, if it has one."""
        return self.sum_at + NUMBER.itemsize * self.is_divided

    @property
    def names_at(self) -> Ints:
        """Where unit, case and slices of each begin."""
        return self.weight_at + NUMBER.itemsize * (self.flags & WEIGHTED).astype(np.bool_)

    def _totals(self) -> NDArray[np.float64]:
        totals = np.ones(len(self))
        own = np.flatnonzero(self.is_divided)
        totals[own] = table_at(self.data, self.sum_at[own], NUMBER)
        if not ((totals > 0.5) & (totals < 2.0)).all():
            raise ValueError("received probabilities that are divided by no sum of probabilities")
        return totals

    def _table(self, own: Ints, dtype: np.dtype[np.generic]) -> NDArray[Any]:
        at = self.start[own] + PREDICTION.itemsize
        table = table_at(self.data, at, np.dtype(f"V{dtype.itemsize}"))
        found: NDArray[Any] = table.view(dtype.base).reshape(len(own), *dtype.shape)
        return found


_COLUMNS = (
    "start",
    "n_bytes",
    "flags",
    "is_divided",
    "is_long",
    "n_scores",
    "n_slices",
    "event_us",
    "sent",
)


def _differs(heads: NDArray[np.void], form: int) -> Mask:
    return ((heads["format"] - PLAIN) & form).astype(np.bool_)
