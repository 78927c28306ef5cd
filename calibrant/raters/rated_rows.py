"""Predictions with several ratings, on which concentrations are fitted and evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.labelled_rows import log_probabilities
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.errors import CalibrationInputError
from calibrant.core.hashing import mix
from calibrant.raters.label_statistics import disagreement

MAX_FEATURE = 1e100
PARTS = ("fit", "score")


@dataclass(frozen=True)
class RatedRows:
    """Predictions with at least two ratings, none of them of a class with probability 0.

    Attributes
    ----------
    logits : float64 (n, n_classes), log-probabilities, at least ln 1e-12
    ratings : float64 (n, n_classes)
    weight : float64 (n,)
    features : float64 (n, n_features), of the head
    unit, half : int64 (n,); half 0 fits and half 1 validates
    n_one_vote, n_zero_probability : numbers of predictions left out
    """

    logits: Floats
    ratings: Floats
    weight: Floats
    features: Floats
    unit: Ints
    half: Ints
    n_one_vote: int
    n_zero_probability: int

    def __len__(self) -> int:
        return len(self.logits)

    def take(self, index: NDArray[Any]) -> RatedRows:
        names = ("logits", "ratings", "weight", "features", "unit", "half")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    @property
    def total(self) -> Floats:
        """Number of ratings of each row, (n,)."""
        return np.asarray(self.ratings.sum(axis=1))

    @property
    def disagreement(self) -> Floats:
        """Share of pairs of ratings that differ, (n,)."""
        return disagreement(self.ratings)


def rated_rows(
    batch: Batch, features: ArrayLike | None = None, parts: Sequence[str] | None = None
) -> RatedRows:
    """Return the predictions of a batch to which alpha-calibration applies.

    Parameters
    ----------
    batch : Batch
    features : float64 (n, n_features), of every prediction of the batch. Default: its log-probabilities.
    parts : "fit" or "score" for every prediction. Default: halves by the hash of the unit.

    Raises
    ------
    CalibrationInputError
        Features that are not finite or not one row per prediction; parts of another length or name, or a unit in both.
    """
    batch_sums = BatchSums(batch)
    labelled = batch_sums.batch
    logits = log_probabilities(labelled)
    x = np.maximum(logits, np.log(CLIP))
    design = features_of(batch, features)[batch_sums.labelled]
    ratings = labelled.label_counts.astype(np.float64)
    several = ratings.sum(axis=1) >= 2
    impossible = several & ((ratings > 0) & ~np.isfinite(logits)).any(axis=1)
    hashes = labelled.unit_hash
    half = (mix(hashes ^ np.uint64(0xC3C3C3C3)) >> np.uint64(63)).astype(np.int64)
    if parts is not None:
        half = _halves(batch, parts)[batch_sums.labelled]
    rows = RatedRows(
        logits=x,
        ratings=ratings,
        weight=batch_sums.weights,
        features=design,
        unit=np.unique(hashes, return_inverse=True)[1].astype(np.int64),
        half=half,
        n_one_vote=int((~several).sum()),
        n_zero_probability=int(impossible.sum()),
    )
    return rows.take(np.flatnonzero(several & ~impossible & (batch_sums.weights > 0)))


def features_of(batch: Batch, features: ArrayLike | None = None) -> Floats:
    """Return the head's features of every prediction, rated or not, float64 (n, n_features).

    Raises
    ------
    CalibrationInputError
        Features that are not finite or not one row per prediction.
    """
    if features is None:
        return np.asarray(np.maximum(log_probabilities(batch), np.log(CLIP)), np.float64)
    given = np.asarray(features, np.float64)
    if given.ndim != 2 or len(given) != batch.n or not (np.abs(given) <= MAX_FEATURE).all():
        detail = f"Received other features; expected numbers up to {MAX_FEATURE:g}, one row for each of {batch.n} predictions."
        raise CalibrationInputError.at("/features", "shape", detail)
    return given


def _halves(batch: Batch, parts: Sequence[str]) -> Ints:
    """Return 0 for rows that fit and 1 for rows that score."""
    if len(parts) != batch.n:
        detail = f"Received {len(parts)} parts; expected one for each of {batch.n} predictions."
        raise CalibrationInputError.at("/parts", "length", detail)
    for place, part in enumerate(parts):
        if part not in PARTS:
            detail = f"Received {str(part)[:60]!r}; expected {' or '.join(PARTS)}."
            raise CalibrationInputError.at(f"/parts/{place}", "one_of", detail)
    half = np.array([PARTS.index(part) for part in parts], np.int64)
    if batch.units is not None or batch.cases is not None:
        hashes = batch.unit_hash
        both = np.intersect1d(hashes[half == 0], hashes[half == 1])
        if len(both):
            place = int(np.flatnonzero((hashes == both[0]) & (half == 1))[0])
            detail = "The unit of this row is in both parts; put all rows of a unit in one part."
            raise CalibrationInputError.at(f"/parts/{place}", "unit_in_both_parts", detail)
    return half
