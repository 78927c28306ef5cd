"""Ratings of a batch by prediction and class, and what of them counts under each label policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.hashing import U64, mix, uniform


@dataclass(frozen=True)
class Ratings:
    """Ratings counted by prediction and class, sorted by prediction, then class; only those that occur."""

    row: NDArray[np.int64]
    class_index: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def none(cls) -> Ratings:
        """Return no ratings."""
        return cls(*np.zeros((3, 0), np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Ratings], sizes: Sequence[int]) -> Ratings:
        """Return the ratings of several batches of so many predictions, one batch after the other."""
        starts = np.cumsum([0, *sizes])
        return cls(
            np.concatenate([each.row + start for each, start in zip(parts, starts, strict=False)]),
            np.concatenate([each.class_index for each in parts]),
            np.concatenate([each.count for each in parts]),
        )

    def of_rows(self, index: NDArray[np.int64], n: int) -> Ratings:
        """Return the ratings of some of n predictions, in the order of `index` and with its repeats."""
        starts = np.append(0, np.cumsum(np.bincount(self.row, minlength=n)))
        first, last = starts[index], starts[index + 1]
        length = last - first
        row = np.repeat(np.arange(len(index)), length)
        selected = np.arange(len(row)) + np.repeat(first - (np.cumsum(length) - length), length)
        return Ratings(row, self.class_index[selected], self.count[selected])

    def between(self, start: int, stop: int) -> Ratings:
        """Return the ratings of consecutive predictions, without copying classes and counts."""
        first, last = np.searchsorted(self.row, [start, stop])
        row = self.row[first:last]
        return Ratings(
            row - start if start else row, self.class_index[first:last], self.count[first:last]
        )

    def hashed(self, n: int) -> U64:
        """Return a hash of each prediction's ratings, uint64 (n,)."""
        total = np.zeros(n, np.uint64)
        classes, counts = self.class_index.astype(np.uint64), self.count.astype(np.uint64)
        np.add.at(total, self.row, mix(classes * np.uint64(0x1F123BB5) + counts))
        return total


class RatedRows:
    """Base of `Batch`: rows with ratings. Its results are computed once."""

    scores: NDArray[np.float64]
    ratings: Ratings
    weights: NDArray[np.float64] | None

    @property
    def n(self) -> int:
        """Number of predictions."""
        return len(self.scores)

    @property
    def prediction_hash(self) -> U64:
        """Hash of each prediction, uint64 (n,)."""
        raise NotImplementedError(f"{type(self).__name__} must hash its predictions")

    @cached_property
    def row_total(self) -> NDArray[np.int64]:
        """Number of ratings of each prediction, int64 (n,); 0 if it has no label."""
        return np.bincount(self.ratings.row, self.ratings.count, self.n).astype(np.int64)

    @cached_property
    def label_counts(self) -> NDArray[np.int64]:
        """Ratings by class, int64 (n, n_classes)."""
        counts = np.zeros(self.scores.shape, np.int64)
        counts[self.ratings.row, self.ratings.class_index] = self.ratings.count
        return counts

    @cached_property
    def only_rating(self) -> NDArray[np.int64] | None:
        """Class of each prediction's one rating, -1 without; None if some prediction has several."""
        row, count = self.ratings.row, self.ratings.count
        if not (count == 1).all() or not (row[1:] > row[:-1]).all():
            return None
        only = np.full(self.n, -1, np.int64)
        only[row] = self.ratings.class_index
        return only

    @cached_property
    def chosen_rating(self) -> NDArray[np.int64]:
        """One rating of each prediction, by its hash: class at place floor(u n) of the sorted ratings; -1 without."""
        if self.only_rating is not None:
            return self.only_rating
        total = self.row_total
        place = np.floor(uniform(mix(self.prediction_hash)) * total).astype(np.int64)
        chosen = np.full(self.n, -1, np.int64)
        before = np.cumsum(self.ratings.count) - self.ratings.count
        start = np.cumsum(total) - total
        within = before - start[self.ratings.row]
        wanted = place[self.ratings.row]
        hit = (within <= wanted) & (wanted < within + self.ratings.count)
        chosen[self.ratings.row[hit]] = self.ratings.class_index[hit]
        return chosen

    @cached_property
    def majority(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Most frequent class of each prediction (ties to the lowest, -1 without ratings), and whether it was tied."""
        if self.only_rating is not None:
            return self.only_rating, np.zeros(self.n, np.bool_)
        best = np.zeros(self.n, np.int64)
        np.maximum.at(best, self.ratings.row, self.ratings.count)
        top = self.ratings.count == best[self.ratings.row]
        rows, classes = self.ratings.row[top], self.ratings.class_index[top]
        winner = np.full(self.n, -1, np.int64)
        winner[rows[::-1]] = classes[::-1]
        return winner, np.bincount(rows, minlength=self.n) > 1

    def rating_weights(self, policy: int) -> NDArray[np.float64]:
        """Return the weight of each entry of the ratings under a label policy, the row's own included; (entries,).

        Parameters
        ----------
        policy : place in `POLICIES`
        """
        row = self.ratings.row
        share = self.chosen_ratings(policy) / (self.row_total[row] if policy == 1 else 1.0)
        return np.asarray(share if self.weights is None else share * self.weights[row])

    def chosen_ratings(self, policy: int) -> NDArray[Any]:
        """Return the number of ratings of each entry that count under a label policy; (entries,)."""
        if policy < 2:
            return self.ratings.count
        classes = self.majority[0] if policy == 2 else self.chosen_rating
        return np.asarray(classes[self.ratings.row] == self.ratings.class_index)
