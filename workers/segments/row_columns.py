"""Rows of predictions: the one form in which time slices and samples store them, in memory and as bytes.

A row has what a later fill cannot know: its sign, its weight, the number of the batch that it was committed in, the hashes of its
prediction and unit, and the delay of its label. Of a time slice each row occurs +1 or -1 times: a delayed label, a correction and
a deletion append the old rows of the unit with -1 and its new rows with +1. A sample counts equal rows.

The fixed part of a row is a structure, its ratings are a ragged column, and names are places in one table. Pieces are therefore
read together by joining these arrays (`workers/segments/row_codec.py` for the bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.core.edge_rules import FLOAT32, known_rules
from calibrant.core.hashing import U64
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.segments.ragged import Ints, joined, owners, places, starts_of
from calibrant_server.workers.segments.scores import Scores

SOURCES = ("row", "id", "case", "unit")
# Source of units from which several rows may share one.
NAMED_UNIT = SOURCES.index("case")
# `case` is a place in the names, -1 without one; `edge_rule` is of `calibrant.core.edge_rules`; `total` and `is_narrow` describe the scores as stored.
FIXED = np.dtype(
    [("hash", "<u8"), ("unit_hash", "<u8"), ("weight", "<f8"), ("total", "<f8"), ("start_s", "<i8"), ("count", "<i8"),
     ("part", "<i8"), ("n_ratings", "<i4"), ("delay", "<i4"), ("case", "<i4"), ("source", "u1"), ("edge_rule", "u1"),
     ("is_logits", "?"), ("is_narrow", "?")]
)  # fmt: skip
RATING = np.dtype([("class_index", "<u4"), ("n", "<u8")])
Mask = NDArray[np.bool_]
Codes = NDArray[np.int32]


def fixed_of(n: int) -> NDArray[np.void]:
    """Return the fixed part of rows that occur once, weigh one, and have neither a case nor a label with a known delay."""
    fixed = np.zeros(n, FIXED)
    fixed["weight"], fixed["count"], fixed["case"], fixed["delay"] = 1.0, 1, -1, UNKNOWN
    fixed["edge_rule"] = FLOAT32
    return fixed


@dataclass(frozen=True, eq=False)
class RowColumns:
    """Rows of one model, in the order in which they were committed.

    Attributes
    ----------
    task : of the model
    fixed : of `FIXED`, one per row
    scores : of each row
    ratings : of `RATING`; the first `n_ratings` are those of the first row
    keys : of slices, in ascending order
    slices : int32 (n, n_keys), places in the names; -1 where a row has no value
    names : different values of slices and cases
    """

    task: str
    fixed: NDArray[np.void]
    scores: Scores
    ratings: NDArray[np.void]
    keys: tuple[str, ...]
    slices: Codes
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.fixed)

    @classmethod
    def of_batch(cls, batch: Batch, part: int) -> Self:
        """Return the rows that a batch adds."""
        n, fixed, given = batch.n, fixed_of(batch.n), batch.slices or {}
        fixed["hash"], fixed["unit_hash"] = batch.prediction_hash, batch.unit_hash
        fixed["source"] = SOURCES.index(batch.unit_source)
        fixed["part"], fixed["is_logits"] = part, batch.is_logits
        fixed["edge_rule"] = known_rules(batch.edge_rules, n)
        if batch.weights is not None:
            fixed["weight"] = batch.weights
        if batch.delays is not None:
            fixed["delay"] = batch.delays
        keys, table = tuple(sorted(given)), NameTable()
        if batch.cases is not None:
            fixed["case"] = table.codes(batch.cases.tolist())
        slices = np.empty((n, len(keys)), np.int32)
        for k, key in enumerate(keys):
            slices[:, k] = table.codes(given[key].tolist())
        fixed["n_ratings"] = np.bincount(batch.ratings.row, minlength=n)
        scores = Scores(np.full(n, batch.is_logits), batch.scores)
        ratings = ratings_table(batch.ratings.class_index, batch.ratings.count)
        return cls(batch.task, fixed, scores, ratings, keys, slices, table.names)

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Concatenate rows, at least of one part.

        Raises
        ------
        ValueError
            Parts are of different tasks or numbers of classes.
        """
        if len(parts) == 1:
            return parts[0]
        if len({each.task for each in parts}) > 1:
            raise ValueError("Received rows of different tasks.")
        fixed = joined([each.fixed for each in parts])
        keys, slices, names = parts[0].keys, [each.slices for each in parts], parts[0].names
        if any(each.names != names or each.keys != keys for each in parts):
            keys = tuple(sorted({key for each in parts for key in each.keys}))
            names = tuple(dict.fromkeys(chain.from_iterable(each.names for each in parts)))
            place = dict(zip(names, range(len(names)), strict=True))
            lookups = [_lookup(each.names, place) for each in parts]
            slices = [_coded(*each, keys) for each in zip(parts, lookups, strict=True)]
            fixed["case"] = np.concatenate(
                [codes[each.fixed["case"]] for each, codes in zip(parts, lookups, strict=True)]
            )
        return cls(
            parts[0].task,
            fixed,
            Scores.together([each.scores for each in parts]),
            joined([each.ratings for each in parts]),
            keys,
            np.concatenate(slices),
            names,
        )

    @classmethod
    def together_apart(cls, parts: Sequence[Self]) -> Self:
        """Concatenate rows whose batches stay apart: a unit's rows share its weight within a batch."""
        rows = cls.together(parts)
        last = [int(each.fixed["part"].max(initial=-1)) + 1 for each in parts]
        first = np.repeat(starts_of(np.array(last)), [len(each) for each in parts])
        return rows.with_columns(part=rows.fixed["part"] + first)

    def with_columns(self, **columns: Any) -> Self:
        """Return the same rows with other values in some columns of the fixed part."""
        fixed = joined([self.fixed])
        for name, values in columns.items():
            fixed[name] = values
        return replace(self, fixed=fixed)

    def numbered_from(self, part: int) -> Self:
        """Return the same rows with the numbers of their batches counted from another one."""
        return self.with_columns(part=self.fixed["part"] + part) if part else self

    def of_part(self, part: int) -> Self:
        """Return the same rows as those of another batch."""
        return self.with_columns(part=part)

    def take(self, index: Ints) -> Self:
        """Select rows."""
        lengths = self.fixed["n_ratings"].astype(np.int64)
        chosen = places(starts_of(lengths)[index], lengths[index])
        return replace(
            self,
            fixed=self.fixed.take(index),
            scores=self.scores.take(index),
            ratings=self.ratings.take(chosen),
            slices=self.slices.take(index, axis=0),
        )

    def where(self, mask: Mask) -> Self:
        """Return the rows of a mask; itself if these are all."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def in_slice(self, slice_: str) -> Self:
        """Return the rows of a slice, `key:value`; all of them for `""`."""
        if slice_ == ALL_ROWS:
            return self
        key, _, value = slice_.partition(":")
        if key not in self.keys or value not in self.names:
            return self.take(np.zeros(0, np.int64))
        return self.where(self.slices[:, self.keys.index(key)] == self.names.index(value))

    @property
    def hashes(self) -> U64:
        """Hash of each prediction: of its id, or of the row where it has none."""
        return np.ascontiguousarray(self.fixed["hash"])

    @property
    def starts(self) -> Ints:
        """Start of the pane of each row of a sample, in seconds."""
        return np.ascontiguousarray(self.fixed["start_s"])

    @property
    def part(self) -> Ints:
        """Number of the batch of each row."""
        return np.ascontiguousarray(self.fixed["part"])

    @property
    def only_adds(self) -> bool:
        """Whether no row takes another one away."""
        return bool((self.fixed["count"] > 0).all())

    @cached_property
    def counted_ratings(self) -> Ratings:
        """Ratings by row and class."""
        row = owners(self.fixed["n_ratings"])
        return Ratings(
            row, self.ratings["class_index"].astype(np.int64), self.ratings["n"].astype(np.int64)
        )

    @cached_property
    def cases(self) -> NDArray[np.object_]:
        """Case of each row, object (n,); None without one."""
        return np.asarray(np.array([*self.names, None], dtype=object)[self.fixed["case"]])

    @cached_property
    def n_by_slice(self) -> dict[str, int]:
        """Rows by slice, however often they occur; all rows are `""`."""
        found = {ALL_ROWS: len(self)}
        for key, codes in zip(self.keys, self.slices.T, strict=True):
            n = np.bincount(codes[codes >= 0])
            some = np.flatnonzero(n).tolist()
            found |= {f"{key}:{self.names[code]}": int(n[code]) for code in some}
        return found

    @property
    def least_bytes(self) -> int:
        """Lower estimate of the packed size, without packing."""
        return 4 * len(self) * self.scores.n_classes + len(self.ratings) // 8


class NameTable:
    """Different names in the order in which they came, with their places."""

    def __init__(self) -> None:
        self._place: dict[Any, int] = {None: -1}

    def codes(self, values: Iterable[str | None]) -> list[int]:
        """Return the place of each name, -1 for None; new names get the next ones."""
        place = self._place
        return [place.setdefault(value, len(place) - 1) for value in values]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, by place."""
        return tuple(self._place)[1:]


def ratings_table(class_index: Ints, n: Ints) -> NDArray[np.void]:
    """Return ratings as rows have them."""
    table = np.empty(len(n), RATING)
    table["class_index"], table["n"] = class_index, n
    return table


def _lookup(names: Sequence[str], place: dict[str, int]) -> Codes:
    """Return the new place of each old one; that of -1 is the last."""
    return np.array([*(place[name] for name in names), -1], np.int32)


def _coded(rows: RowColumns, lookup: Codes, keys: Sequence[str]) -> Codes:
    """Return the values of slices by more keys, and by places in another table of names."""
    slices = np.full((len(rows), len(keys)), -1, np.int32)
    for k, key in enumerate(rows.keys):
        slices[:, keys.index(key)] = lookup[rows.slices[:, k]]
    return slices
