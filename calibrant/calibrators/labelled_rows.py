"""Labelled rows to which maps are fitted and on which they are compared: log-probabilities, weights of ratings, units.

One row is one prediction. Losses add over rows, and their variation is taken over units, so that several rows of a
patient count as one observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.sample import Sample
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Result
from calibrant.core.hashing import U64, hash_rows, mix
from calibrant.core.logits import relative_logits
from calibrant.core.pane import Pane
from calibrant.core.view import NoResultError, View

MIN_UNITS = 20


@dataclass(frozen=True)
class LabelledRows:
    """Labelled predictions under one label policy.

    Attributes
    ----------
    logits : float64 (n, n_classes), log-probabilities, minus infinity if a probability is 0
    share : float64 (n, n_classes), weight of the ratings of each class, the prediction's own weight included
    unit : int64 (n,), index of each row's unit
    half : int64 (n,), 0 or 1, by the unit's hash
    place : int64 (n,), place of each row among the labelled predictions of its batch
    """

    logits: Floats
    share: Floats
    unit: Ints
    half: Ints
    place: Ints

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def n_classes(self) -> int:
        return int(self.logits.shape[1])

    @cached_property
    def weight(self) -> Floats:
        """Weight of each row, float64 (n,)."""
        return np.asarray(self.share.sum(axis=1))

    @cached_property
    def n_units(self) -> int:
        return int(np.count_nonzero(np.bincount(self.unit[self.weight > 0])))

    @cached_property
    def rated(self) -> tuple[Ints, Ints, Floats]:
        """Rows, classes and weights of the ratings; (n_ratings,) each."""
        row, class_index = np.nonzero(self.share > 0)
        return row, class_index, self.share[row, class_index]

    @cached_property
    def probabilities(self) -> Floats:
        """Probabilities, float64 (n, n_classes)."""
        return np.exp(self.logits)

    @cached_property
    def top_class(self) -> Ints:
        return np.asarray(np.argmax(self.logits, axis=1))

    @cached_property
    def is_all_right(self) -> bool:
        """Whether every rating is of a most probable class. Then the loss falls with the temperature down to its bound."""
        below = self.logits < self.logits.max(axis=1, keepdims=True)
        return bool(self.share[below].sum() <= 1e-12 * self.weight.sum())

    def of_class(self, class_index: int) -> LabelledRows:
        """Return the same rows with two classes: the rest, and this one."""
        own, share = self.logits[:, class_index], self.share[:, class_index]
        with np.errstate(divide="ignore"):
            logits = np.stack([np.log1p(-np.minimum(np.exp(own), 1.0)), own], axis=1)
        shares = np.stack([np.maximum(self.weight - share, 0.0), share], axis=1)
        return LabelledRows(logits, shares, self.unit, self.half, self.place)

    def take(self, index: NDArray[Any]) -> LabelledRows:
        columns = (self.logits, self.share, self.unit, self.half, self.place)
        return LabelledRows(*(column[index] for column in columns))


def labelled_rows(batch: Batch, policy: int) -> LabelledRows:
    """Return the labelled predictions of a batch under a policy's place in `POLICIES`."""
    batch_sums = BatchSums(batch)
    labelled, share = batch_sums.batch, np.zeros((batch_sums.n, batch.n_classes))
    share[labelled.ratings.row, labelled.ratings.class_index] = labelled.rating_weights(policy)
    half = (mix(_placed(labelled) ^ np.uint64(0x5A5A5A5A)) >> np.uint64(63)).astype(np.int64)
    unit = np.unique(labelled.unit_hash, return_inverse=True)[1].astype(np.int64)
    return LabelledRows(log_probabilities(labelled), share, unit, half, np.arange(batch_sums.n))


def _placed(batch: Batch) -> U64:
    """Return what halves are chosen by: the unit, for rows without a name their scores.

    A row without a name has the hash of its scores and labels. By it, equal rows of equal labels would be in one half, and
    the halves would differ in their labels.
    """
    own = Batch(batch.task, batch.scores, batch.is_logits, batch.ratings).prediction_hash
    return np.where(batch.unit_hash == own, hash_rows(batch.scores), batch.unit_hash)


def log_probabilities(batch: Batch) -> Floats:
    """Return natural logarithms of a batch's probabilities, minus infinity at 0; (n, n_classes)."""
    if not batch.is_logits:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(batch.scores))
    shifted = relative_logits(batch.scores, axis=1)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def about_sample(pane: Pane) -> Result | None:
    """Return the share of a pane's labelled predictions in the stored sample; None if none is stored.

    Returns
    -------
    dict with `n`, `n_drawn_from`, `threshold` (share of ids in the sample) and `complete`
    """
    if not pane.keeps("sample"):
        return None
    sample = pane["sample"]
    assert isinstance(sample, Sample)
    drawn_from = pane.counts["n_labelled"]
    return {
        "n": sample.n,
        "n_drawn_from": drawn_from,
        "threshold": sample.threshold,
        "complete": sample.n == drawn_from,
    }


def rows_of(view: View, most: int | None = None) -> tuple[LabelledRows, Result | None]:
    """Return the rows on which a view can be fitted, and their share of all rows; None if they are all.

    Parameters
    ----------
    view : View
    most : maximum number of rows of a sample. Rows are sorted by the hash of their ids, so that the first ones
            are a uniform subsample.

    Raises
    ------
    NoResultError
        The window contains plain histograms, or its panes store no sample.
    """
    view.reject_histograms()
    if view.batch_sums is not None:
        return labelled_rows(view.batch_sums.complete_batch, view.policy), None
    about = about_sample(view.pane)
    if about is None:
        detail = "panes with this number of classes store no sample of complete rows"
        raise NoResultError("not_kept", detail)
    batch = view.pane.sample.batch()
    if most is not None and batch.n > most:
        batch = batch.take(np.arange(most))
    return labelled_rows(batch, view.policy), about
