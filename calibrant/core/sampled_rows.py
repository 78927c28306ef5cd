"""Rows of a sample: distinct predictions by the hash of their id, and whether an id is below a threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns
from calibrant.core.float32 import Narrowed, narrow_scores, pack_scores, unpack_scores
from calibrant.core.hashing import U64, hash_rows, mix
from calibrant.core.stored_batch import HashedBatch
from calibrant.input.input_columns import MAX_WEIGHT, MIN_WEIGHT
from calibrant.input.score_columns import MAX_LOGIT

ROW_BYTES, RATING_BYTES = 32, 4
MAX_HALVINGS = 64
ROW_SUM = 1e-6
COLUMNS = ("ids", "units", "logits", "weights", "scores", "counts")


@dataclass(frozen=True, eq=False)
class SampledBatch(HashedBatch):
    """Stored predictions as a batch. Among logits, probabilities are represented by their logarithms, minus infinity for 0.

    Attributes
    ----------
    weights : float64 (n,), times the number of occurrences of the same prediction
    """

    @property
    def unit_source(self) -> str:
        """Origin of units: "unit" if any differs from its prediction's own hash, else "id"."""
        assert self.hashes is not None and self.unit_hashes is not None
        return "id" if np.array_equal(self.hashes, self.unit_hashes) else "unit"


@dataclass(frozen=True)
class SampledRows:
    """Distinct predictions with their number of occurrences. Ratings are sorted by row, then class."""

    ids: U64
    units: U64
    logits: NDArray[np.uint8]
    weights: Floats
    scores: Floats
    counts: Ints
    ratings: Ratings

    def __len__(self) -> int:
        return len(self.ids)

    def content(self) -> U64:
        """Hash everything that distinguishes two rows of one id."""
        plain = np.column_stack([self.scores, self.weights, self.logits.astype(np.float64)])
        return mix(mix(hash_rows(plain) ^ self.ratings.hashed(len(self))) ^ self.units)

    def take(self, index: Ints) -> SampledRows:
        return self._selected(index, self.ratings.of_rows(index, len(self)))

    def first(self, n: int) -> SampledRows:
        """Return the first n rows."""
        return self if n == len(self) else self._selected(slice(n), self.ratings.between(0, n))

    def _selected(self, index: Ints | slice, ratings: Ratings) -> SampledRows:
        columns: Columns = {name: getattr(self, name)[index] for name in COLUMNS}
        return SampledRows(**columns, ratings=ratings)._knowing_of([self], index)

    def counted(self, counts: Ints) -> SampledRows:
        """Return the same rows with these numbers of occurrences."""
        return replace(self, counts=counts)._knowing_of([self], slice(None))

    @classmethod
    def together(cls, parts: Sequence[SampledRows]) -> SampledRows:
        """Concatenate the rows of several samples."""
        columns: Columns = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS
        }
        ratings = Ratings.joined([part.ratings for part in parts], list(map(len, parts)))
        return cls(**columns, ratings=ratings)._knowing_of(parts, slice(None))

    def _knowing_of(self, parts: Sequence[SampledRows], index: Ints | slice) -> SampledRows:
        """Return the same rows, which are those of some parts at an index: how they narrow is known where it is of these."""
        if not all("narrow" in part.__dict__ for part in parts):
            return self
        fits, scores, totals = (
            np.concatenate([part.narrow[place] for part in parts])[index] for place in range(3)
        )
        return self.knowing((fits, scores, totals))

    @cached_property
    def n_bytes(self) -> Ints:
        """Bytes of each row: four for a score that came as float32, else eight."""
        return np.asarray(
            self.scores.shape[1] * np.where(self.narrow[0], 4, 8)
            + ROW_BYTES
            + RATING_BYTES * np.bincount(self.ratings.row, minlength=len(self))
        )

    @property
    def max_bytes(self) -> int:
        """Upper bound of the bytes of all rows, for little work."""
        of_row: int = 8 * self.scores.shape[1] + ROW_BYTES
        return len(self) * of_row + RATING_BYTES * len(self.ratings.row)

    @cached_property
    def narrow(self) -> Narrowed:
        """Which rows four bytes a score restore, these scores, and what each is divided by (`float32.narrow_scores`)."""
        return narrow_scores(self.scores, self.logits == 1)

    def cached_arrays(self) -> Iterator[NDArray[Any]]:
        """Return the arrays that were computed from the rows and are cached with them."""
        if "n_bytes" in self.__dict__:
            yield self.n_bytes
        if "narrow" in self.__dict__:
            yield from (each for each in self.narrow if isinstance(each, np.ndarray))

    def knowing(self, narrow: Narrowed) -> SampledRows:
        """Return the same rows, of which it is known how they narrow: to find it out costs more than all else."""
        self.__dict__["narrow"] = narrow
        return self

    def bytes_at(self, halvings: int, *, every_version: bool) -> int:
        """Return the bytes of the rows below a threshold; only of each id's longest version unless `every_version`."""
        size = self.n_bytes
        keep = below(self.ids, halvings)
        if every_version or not keep.any():
            return int(size[keep].sum())
        ids, size = self.ids[keep], size[keep]
        order = np.lexsort((size, ids))
        last = np.append(ids[order][1:] != ids[order][:-1], True)
        return int(size[order][last].sum())


def below(hashes: U64, halvings: int) -> NDArray[np.bool_]:
    """Return whether each hash is below 2^(64 - halvings); none is at 64."""
    if halvings >= MAX_HALVINGS:
        return np.zeros(len(hashes), np.bool_)
    return np.asarray(hashes <= np.uint64((1 << (64 - halvings)) - 1))


def n_distinct(hashes: U64) -> int:
    """Count the distinct hashes; sorting is faster than numpy's hash table."""
    ordered = np.sort(hashes)
    return int((ordered[1:] != ordered[:-1]).sum()) + (len(ordered) > 0)


def n_below(ids: U64, halvings: int) -> int:
    """Count the sorted ids below the threshold."""
    if not 0 < halvings < MAX_HALVINGS:
        return 0 if halvings else len(ids)
    return int(np.searchsorted(ids, np.uint64(1 << (64 - halvings))))


def no_rows(n_classes: int) -> SampledRows:
    hashes, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    logits, weights, scores = np.zeros(0, np.uint8), np.zeros(0), np.zeros((0, n_classes))
    return SampledRows(hashes, hashes, logits, weights, scores, counts, Ratings.none())


def rows_of(batch: Batch, hashes: U64, units: U64) -> SampledRows:
    logits = np.full(batch.n, batch.is_logits, np.uint8)
    weights = np.ones(batch.n) if batch.weights is None else batch.weights
    # Minus zero hashes as zero, so zero is stored.
    scores = batch.scores + 0.0
    return SampledRows(
        hashes, units, logits, weights + 0.0, scores, np.ones(batch.n, np.int64), batch.ratings
    )


def fits(rows: SampledRows, n_classes: int) -> bool:
    """Return whether the columns have their types and lengths."""
    n, ratings = len(rows.ids), rows.ratings
    columns = ((rows.ids, np.uint64), (rows.units, np.uint64), (rows.logits, np.uint8), (rows.weights, np.float64),
               (rows.counts, np.int64))  # fmt: skip
    if any(column.dtype != dtype or column.shape != (n,) for column, dtype in columns):
        return False
    if rows.scores.dtype != np.float64 or rows.scores.shape != (n, n_classes):
        return False
    entries = (ratings.row, ratings.class_index, ratings.count)
    return len({each.shape for each in entries}) == 1 and all(
        each.dtype == np.int64 and each.ndim == 1 for each in entries
    )


def is_possible(rows: SampledRows) -> bool:
    """Return whether predictions can have these values, each row once and sorted."""
    n, n_classes = rows.scores.shape
    ratings = rows.ratings
    if not (np.isfinite(rows.scores).all() and np.isfinite(rows.weights).all()):
        return False
    if (rows.logits > 1).any() or (rows.counts < 1).any() or (rows.counts > 2**53).any():
        return False
    if ((rows.weights < MIN_WEIGHT) & (rows.weights != 0) | (rows.weights > MAX_WEIGHT)).any():
        return False
    inside = [(each >= low) & (each < high) for each, low, high in zip(
        (ratings.row, ratings.class_index, ratings.count), (0, 0, 1), (n, n_classes, 2**53), strict=True)]  # fmt: skip
    if not np.all(inside) or (np.diff(ratings.row * n_classes + ratings.class_index) <= 0).any():
        return False
    if len(np.unique(ratings.row)) != n:
        return False
    plain = rows.scores[rows.logits == 0]
    if ((plain < 0) | (plain > 1)).any() or (np.abs(plain.sum(axis=1) - 1.0) > ROW_SUM).any():
        return False
    if (np.abs(rows.scores) > MAX_LOGIT).any():
        return False
    content = rows.content()
    ids = rows.ids
    rising = (ids[1:] > ids[:-1]) | ((ids[1:] == ids[:-1]) & (content[1:] > content[:-1]))
    return bool(rising.all())


_PLAIN = tuple(name for name in COLUMNS if name != "scores")


def packed_columns(rows: SampledRows) -> dict[str, NDArray[Any]]:
    """Return rows as arrays: scores in four bytes where these restore the same bits."""
    columns = {name: getattr(rows, name) for name in _PLAIN}
    return (
        columns
        | pack_scores(rows.scores, rows.narrow)
        | {
            "n_votes": np.bincount(rows.ratings.row, minlength=len(rows)),
            "vote_class": rows.ratings.class_index,
            "vote_count": rows.ratings.count,
        }
    )


def unpacked_columns(arrays: Mapping[str, NDArray[Any]]) -> SampledRows:
    """Return the rows that `packed_columns` wrote. Their values are not checked.

    A missing array is a KeyError; arrays of other lengths are a ValueError or an IndexError.
    """
    n = len(arrays["ids"])
    ratings = Ratings(
        np.repeat(np.arange(n), arrays["n_votes"]), arrays["vote_class"], arrays["vote_count"]
    )
    columns: dict[str, Any] = {name: arrays[name] for name in _PLAIN}
    scores, narrow = unpack_scores(arrays, n)
    return SampledRows(**columns, scores=scores, ratings=ratings).knowing(narrow)


def first_format(arrays: Mapping[str, NDArray[Any]]) -> SampledRows:
    """Return rows of format 1: eight bytes a score, a row number for each rating."""
    ratings = Ratings(*(arrays[f"vote_{name}"] for name in ("row", "class", "count")))
    columns: dict[str, Any] = {name: arrays[name] for name in COLUMNS}
    return SampledRows(**columns, ratings=ratings)
