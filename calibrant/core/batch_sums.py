"""Sums of a batch that several accumulators need, computed once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, Ints, over_classes
from calibrant.core.batch import Batch
from calibrant.core.hashing import hash_rows, mix
from calibrant.core.logits import relative_logits
from calibrant.input.notes import NO_NOTES, InputNotes
from calibrant.raters.label_comparison import entropy_of_columns

N_REPLICATES = 64
T = TypeVar("T")


@dataclass(frozen=True)
class CorrectRatings:
    """Ratings of some class of a row: `row`, and the four policies' weights, before the row's own weight.

    `share` is the weight under `mean`: the rating's share of the row's ratings.
    """

    row: Ints
    class_index: Ints
    ratings: Floats
    share: Floats
    majority: NDArray[np.bool_]
    single: NDArray[np.bool_]

    def where(self, keep: NDArray[np.bool_]) -> CorrectRatings:
        index = np.flatnonzero(keep)
        return CorrectRatings(*(column[index] for column in self.columns))

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        return self.row, self.class_index, self.ratings, self.share, self.majority, self.single


class BatchSums:
    """Labelled predictions of a batch with all values that more than one accumulator reads.

    Attributes
    ----------
    complete_batch : all predictions of the batch, labelled or not
    batch : the labelled predictions
    """

    def __init__(self, batch: Batch) -> None:
        self.complete_batch = batch
        labelled = np.zeros(batch.n, np.bool_)
        labelled[batch.ratings.row[batch.ratings.count > 0]] = True
        self.labelled = labelled
        self.batch = batch if labelled.all() else batch.take(np.flatnonzero(labelled))
        self._made: dict[Any, Any] = {}

    def once(self, make: Callable[[BatchSums], T]) -> T:
        """Compute `make` once per batch and share the result."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @property
    def n(self) -> int:
        return self.batch.n

    @cached_property
    def n_ratings(self) -> Ints:
        return self.batch.row_total

    @cached_property
    def constant_ratings(self) -> int | None:
        """Number of ratings per prediction if all have equally many and weight one, else None."""
        first = int(self.n_ratings[0]) if self.n else 1
        return first if self.batch.weights is None and (self.n_ratings == first).all() else None

    @cached_property
    def weights(self) -> Floats:
        return np.ones(self.n) if self.batch.weights is None else self.batch.weights

    @cached_property
    def columns(self) -> Floats:
        """Probabilities by class, float64 (n_classes, n), rows contiguous."""
        return np.ascontiguousarray(self.batch.probabilities.T)

    @cached_property
    def top_class(self) -> Ints:
        return np.asarray(np.argmax(self.batch.probabilities, axis=1))

    @cached_property
    def confidence(self) -> Floats:
        return np.asarray(self.batch.probabilities[np.arange(self.n), self.top_class])

    @cached_property
    def score(self) -> Floats:
        """Score for replicates, units and the temperature's tables: class 1 of binary models, else the top class."""
        return self.columns[1] if self.batch.task == "binary" else self.confidence

    @cached_property
    def correct_ratings(self) -> CorrectRatings:
        """Every (row, class) with a rating."""
        ratings = self.batch.ratings
        count = ratings.count.astype(np.float64)
        return CorrectRatings(
            ratings.row,
            ratings.class_index,
            count,
            count / self.n_ratings[ratings.row],
            self.batch.majority[0][ratings.row] == ratings.class_index,
            self.batch.chosen_rating[ratings.row] == ratings.class_index,
        )

    @cached_property
    def top_correct(self) -> CorrectRatings:
        return self.correct_ratings.where(
            self.correct_ratings.class_index == self.top_class[self.correct_ratings.row]
        )

    @cached_property
    def positive_correct(self) -> CorrectRatings:
        return self.correct_ratings.where(self.correct_ratings.class_index == 1)

    @property
    def has_units(self) -> bool:
        """Whether the caller named units, so that several rows may share one."""
        return self.batch.has_units

    @property
    def unit_index(self) -> Ints:
        """Unit of each row as a number from 0; every row is its own unit if none were named."""
        return self.batch.unit_index

    @cached_property
    def n_units(self) -> int:
        return int(self.unit_index.max()) + 1 if self.n else 0

    @cached_property
    def unit_size(self) -> Floats:
        """Number of rows with the unit of each row, itself included."""
        if not self.has_units:
            return np.ones(self.n)
        return np.bincount(self.unit_index)[self.unit_index].astype(np.float64)

    @cached_property
    def replicate(self) -> Ints:
        """Replicate of each row's unit, 0 to 63, as the fill assigns it; of a row without a name by its scores."""
        batch = self.batch
        units = hash_rows(batch.scores) if batch.unit_source == "row" else batch.unit_hash
        return (mix(units ^ np.uint64(0xA5A5A5A5)) >> np.uint64(58)).astype(np.int64)

    @cached_property
    def squares(self) -> Floats:
        """Sum over classes of the squared probabilities of each prediction; (n,)."""
        return over_classes(self.columns**2)

    @cached_property
    def entropy(self) -> Floats:
        """Entropy of each prediction, in nats; (n,)."""
        return entropy_of_columns(self.columns)

    @cached_property
    def correct_probability(self) -> Floats:
        """Probability of each rating entry's class; (entries,)."""
        return np.asarray(
            self.batch.probabilities[self.correct_ratings.row, self.correct_ratings.class_index]
        )

    @cached_property
    def rated_probability(self) -> Floats:
        """Sum over each prediction's ratings of the probability of their class; (n,)."""
        return np.bincount(
            self.correct_ratings.row,
            self.correct_ratings.ratings * self.correct_probability,
            self.n,
        ).astype(np.float64)

    @cached_property
    def policy_weights(self) -> Floats:
        """Weight of each rating entry of `correct_ratings` under each policy, the row's own weight included; (policies, entries)."""
        correct_ratings = self.correct_ratings
        columns = np.stack(
            [
                correct_ratings.ratings,
                correct_ratings.share,
                correct_ratings.majority,
                correct_ratings.single,
            ]
        )
        return columns * self.weights[correct_ratings.row]

    @cached_property
    def log_probability(self) -> Floats:
        """Natural logarithm of each rating entry's probability, minus infinity at 0; (entries,)."""
        correct_ratings, batch = self.correct_ratings, self.batch
        if not batch.is_logits:
            with np.errstate(divide="ignore"):
                return np.asarray(
                    np.log(batch.scores[correct_ratings.row, correct_ratings.class_index])
                )
        logit = relative_logits(batch.scores, axis=1)
        log_total = np.log(np.exp(logit).sum(axis=1))
        return np.asarray(
            logit[correct_ratings.row, correct_ratings.class_index] - log_total[correct_ratings.row]
        )


class RawRows:
    """Rows that most results need only as a pane.

    Parameters
    ----------
    read : returns the checked rows
    notes : what was altered as they were read
    """

    def __init__(self, read: Callable[[], Batch], notes: InputNotes = NO_NOTES) -> None:
        self._read, self.notes = read, notes

    @cached_property
    def batch_sums(self) -> BatchSums:
        """The labelled rows, with what several results read."""
        return BatchSums(self._read())
