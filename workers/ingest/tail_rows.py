"""Rows of a tail: the rows of a time slice that are not sums yet, as a small pane stores them.

A tail belongs to a model and a time slice. Its rows feed the pane of all rows and the pane of each of their slices. Every
row carries what a later fill cannot know: its sign, its weight, the number of the batch that it was committed in, the hashes
of its prediction and unit, and the delay of its label. A unit's share in a pane is 1 over the number of its rows of one
batch there. A batch is appended complete and folded complete, so each fill finds the share that was committed.

Rows are added and taken away as they were filled: a delayed label, a correction and a deletion append the old rows of the
unit with sign -1 and its new rows with sign +1. Equal rows of opposite sign cancel before a fill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns
from calibrant.core.edge_rules import known_rules, stated_rules
from calibrant.core.float32 import Narrowed, narrow_scores
from calibrant.core.hashing import U64
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS, ROWS_TOGETHER
from calibrant.core.stored_batch import StoredBatch
from calibrant_server.workers.ingest.tail_cancelling import uncancelled
from calibrant_server.workers.ingest.tail_format import has_names, pack_rows, unpack_rows

SOURCES = ("row", "id", "case", "unit")
_NAMED = SOURCES.index("case")
COLUMNS = (
    "logits",
    "sign",
    "part",
    "weights",
    "source",
    "named",
    "delays",
    "edge_rules",
    "hashes",
    "unit_hashes",
)
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TailRows:
    """Signed rows of one model and time slice, in the order in which they were committed.

    Attributes
    ----------
    task : of the model
    scores : float64 (n, n_classes), as filled
    ratings : ratings, counted
    logits : bool (n,); scores are logits, not probabilities
    sign : int64 (n,), +1 or -1
    part : int64 (n,), number of the batch
    weights : float64 (n,)
    source : int64 (n,), place in `SOURCES`
    named : bool (n,); the prediction hash is of an id, not of the row
    delays : int64 (n,), of the first label (`calibrant.accumulators.delays`)
    edge_rules : uint8 (n,), by which scores are on an edge of bins (`calibrant.core.edge_rules`)
    hashes, unit_hashes : uint64 (n,)
    cases : object (n,) of str or None
    slices : key to object (n,) of str, None where a row has no value
    """

    task: str
    scores: NDArray[np.float64]
    ratings: Ratings
    logits: Mask
    sign: Ints
    part: Ints
    weights: NDArray[np.float64]
    source: Ints
    named: Mask
    delays: Ints
    edge_rules: NDArray[np.uint8]
    hashes: U64
    unit_hashes: U64
    cases: NDArray[Any]
    slices: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def of_batch(cls, batch: Batch, part: int) -> TailRows:
        """Return the rows that a batch adds."""
        n = batch.n
        return cls(
            batch.task,
            batch.scores,
            batch.ratings,
            np.full(n, batch.is_logits),
            np.ones(n, np.int64),
            np.full(n, part),
            np.ones(n) if batch.weights is None else batch.weights,
            np.full(n, SOURCES.index(batch.unit_source)),
            np.full(n, batch.ids is not None),
            np.full(n, UNKNOWN) if batch.delays is None else batch.delays,
            known_rules(batch.edge_rules, n),
            batch.prediction_hash,
            batch.unit_hash,
            np.full(n, None, dtype=object) if batch.cases is None else batch.cases,
            dict(batch.slices or {}),
        )

    @classmethod
    def together(cls, parts: Sequence[TailRows]) -> TailRows:
        """Concatenate rows."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        ratings = Ratings(
            np.concatenate([p.ratings.row + at for p, at in zip(parts, starts, strict=False)]),
            np.concatenate([p.ratings.class_index for p in parts]),
            np.concatenate([p.ratings.count for p in parts]),
        )
        columns: Columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in (*COLUMNS, "scores", "cases")
        }
        keys = sorted({key for part in parts for key in part.slices})
        slices = {
            key: np.concatenate(
                [part.slices.get(key, np.full(len(part), None, dtype=object)) for part in parts]
            )
            for key in keys
        }
        rows = cls(task=parts[0].task, ratings=ratings, slices=slices, **columns)
        if all(part.known_narrow for part in parts):
            fits, scores, totals = (
                np.concatenate([part.narrow[place] for part in parts]) for place in range(3)
            )
            rows.knowing((fits, scores, totals))
        return rows

    @cached_property
    def narrow(self) -> Narrowed:
        """Which rows four bytes a score restore, these scores, and what each is divided by (`float32.narrow_scores`)."""
        return narrow_scores(self.scores, self.logits)

    @property
    def known_narrow(self) -> Narrowed | None:
        """`narrow`, if it is known already."""
        return self.__dict__.get("narrow")

    def knowing(self, narrow: Narrowed | None) -> TailRows:
        """Keep how the scores narrow, if it is known, and return these rows: computing it takes longer than packing."""
        if narrow is not None:
            self.__dict__["narrow"] = narrow
        return self

    def of_part(self, part: int) -> TailRows:
        """Return the same rows as those of another batch."""
        return replace(self, part=np.full(len(self), part)).knowing(self.known_narrow)

    def take(self, index: Ints | Mask) -> TailRows:
        """Select rows, keeping their order."""
        rows = np.arange(len(self))[index]
        ratings = Batch(self.task, self.scores, False, self.ratings).take(rows).ratings
        columns: Columns = {
            name: getattr(self, name)[rows] for name in (*COLUMNS, "scores", "cases")
        }
        slices = {key: values[rows] for key, values in self.slices.items()}
        taken = replace(self, ratings=ratings, slices=slices, **columns)
        known = self.known_narrow
        if known is not None:
            taken.knowing((known[0][rows], known[1][rows], known[2][rows]))
        return taken

    def between(self, start: int, stop: int) -> TailRows:
        """Return neighbouring rows, which share the memory of these."""
        first, last = np.searchsorted(self.ratings.row, (start, stop))
        row = self.ratings.row[first:last] - start
        ratings = Ratings(row, self.ratings.class_index[first:last], self.ratings.count[first:last])
        columns: Columns = {
            name: getattr(self, name)[start:stop] for name in (*COLUMNS, "scores", "cases")
        }
        slices = {key: values[start:stop] for key, values in self.slices.items()}
        return replace(self, ratings=ratings, slices=slices, **columns)

    def pack(self) -> bytes:
        """Return the rows as bytes, exactly."""
        return pack_rows(self)

    @classmethod
    def unpack(cls, data: bytes) -> TailRows:
        """Return the rows that `pack` wrote.

        Raises
        ------
        PackingError
            Damaged bytes, or bytes of a newer format.
        """
        columns, narrow = unpack_rows(data)
        return cls(**columns).knowing(narrow)

    @classmethod
    def unpack_pieces(cls, pieces: Sequence[bytes]) -> TailRows:
        """Return the rows of the pieces of a tail, at least one, in their order.

        Raises
        ------
        PackingError
            Damaged bytes, or bytes of a newer format.
        """
        return cls.together([cls.unpack(data) for data in pieces])

    @cached_property
    def n_by_slice(self) -> dict[str, int]:
        """Rows of either sign by slice; all rows are `""`."""
        found = {ALL_ROWS: len(self)}
        for key, values in self.slices.items():
            for value in values.tolist():
                if value is not None:
                    name = f"{key}:{value}"
                    found[name] = found.get(name, 0) + 1
        return found

    @property
    def only_adds(self) -> bool:
        """Whether no row takes another one away."""
        return bool((self.sign > 0).all())

    @property
    def least_bytes(self) -> int:
        """Lower estimate of the packed size, without packing."""
        return 4 * self.scores.size + len(self.ratings.row) // 8

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory of the columns, without names: those of a slice or case are shared by its rows."""
        ratings, narrow = self.ratings, self.known_narrow or ()
        columns = [getattr(self, name) for name in (*COLUMNS, "scores", "cases")]
        columns += [ratings.row, ratings.class_index, ratings.count, *self.slices.values(), *narrow]
        return sum(column.nbytes for column in columns)

    @cached_property
    def net(self) -> TailRows:
        """The rows without those that equal rows of opposite sign."""
        if (self.sign > 0).all() or (self.sign < 0).all():
            return self
        return self.take(uncancelled(self))

    def fill_into(self, pane: Pane, slice_: str, make: Callable[[], Pane]) -> None:
        """Add the rows of a slice to a pane, then take away those of negative sign.

        In this order no cell passes through a count of zero, at which its sums would be dropped.

        Parameters
        ----------
        make : an empty pane of the same specification
        """
        rows = self.net._of_slice(slice_)
        lost = rows.sign < 0
        has_lost = bool(lost.any())
        gained = rows.take(~lost) if has_lost else rows
        # Every fill of a pane with sparse blocks merges cells: several fills are cheaper in a pane of their own.
        filled = pane if len(gained) <= 2 * ROWS_TOGETHER else make()
        for batch in gained.batches():
            filled.fill_batch(batch)
        if filled is not pane:
            pane.merge(filled)
        if has_lost:
            delta = make()
            for batch in rows.take(lost).batches():
                delta.fill_batch(batch)
            pane.subtract(delta)

    def batches(self) -> Iterator[StoredBatch]:
        """Yield the rows as batches of one kind of score and one source of units."""
        rows = self._of_one_form()
        for source, name in enumerate(SOURCES):
            for is_logits in (False, True):
                chosen = (rows.source == source) & (rows.logits == is_logits)
                some = rows if chosen.all() else rows.take(chosen) if chosen.any() else None
                for piece in some._by_part() if some is not None else ():
                    yield piece._batch(is_logits, name)

    def _batch(self, is_logits: bool, source: str) -> StoredBatch:
        cases = self.cases if has_names(self.cases) else None
        return StoredBatch(
            self.task, self.scores, is_logits, self.ratings,
            None if (self.weights == 1.0).all() else self.weights,
            cases=cases, delays=None if (self.delays == UNKNOWN).all() else self.delays,
            edge_rules=stated_rules(self.edge_rules),
            hashes=self.hashes, unit_hashes=self.unit_hashes, source=source, parts=self.part,
        )  # fmt: skip

    def _by_part(self) -> Iterator[TailRows]:
        """Divide rows where a batch ends, into pieces of the size that is filled fastest."""
        if len(self) <= ROWS_TOGETHER:
            if len(self):
                yield self
            return
        rows = self
        if (np.diff(self.part) < 0).any():
            rows = self.take(np.argsort(self.part, kind="stable"))
        numbers = rows.part
        cuts = np.searchsorted(numbers, numbers[np.arange(ROWS_TOGETHER, len(rows), ROWS_TOGETHER)])
        ends = [0, *np.unique(cuts[cuts > 0]).tolist(), len(rows)]
        yield from (rows.between(*ends_of) for ends_of in pairwise(ends))

    def _of_slice(self, slice_: str) -> TailRows:
        if slice_ == ALL_ROWS:
            return self
        key, _, value = slice_.partition(":")
        if key not in self.slices:
            return self.take(np.zeros(0, np.int64))
        chosen = self.slices[key] == value
        return self if chosen.all() else self.take(chosen)

    def _of_one_form(self) -> TailRows:
        """Return the rows with probabilities for the logits of units that were sent in both forms.

        A unit's rows share its weight and are therefore filled together.
        """
        if self.logits.all() or not self.logits.any():
            return self
        logits, scores = self.logits.copy(), self.scores.copy()
        for index in _mixed_units(self):
            rows = index[self.logits[index]]
            none = np.zeros(0, np.int64)
            logits[rows] = False
            scores[rows] = Batch(
                self.task, self.scores[rows], True, Ratings(none, none, none)
            ).probabilities
        return replace(self, logits=logits, scores=scores)


def _mixed_units(rows: TailRows) -> Iterator[Ints]:
    """Yield the rows of each named unit of a batch that has both logits and probabilities."""
    named = np.flatnonzero(rows.source >= _NAMED)
    keys = np.stack([rows.unit_hashes[named].view(np.int64), rows.part[named], rows.source[named]])
    units, unit_of = np.unique(keys, axis=1, return_inverse=True)
    unit_of = unit_of.reshape(-1)
    n_logits = np.bincount(unit_of, rows.logits[named], units.shape[1])
    n_rows = np.bincount(unit_of, minlength=units.shape[1])
    for unit in np.flatnonzero((n_logits > 0) & (n_logits < n_rows)):
        yield named[unit_of == unit]
