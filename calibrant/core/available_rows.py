"""Complete predictions for results that no sum gives: the posted rows, or else the stored uniform sample.

Results from the sample state so: `source`, the number of predictions used, and the number of which they were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.accumulators.sample import Sample
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.hashing import mix, occurrences
from calibrant.core.view import NoResultError, View

MAX_PAIRED = 1000
# Label policies under which a row's label is the share of all its ratings.
SHARES = ("pooled", "mean")
DRAWN_SHARES = "as many labels of each prediction as it has ratings, drawn from the predictions; a unit's predictions fully dependent"
# Equal rows without ids are stored once, with their number: of more than this many together fewer are drawn from, in proportion.
MAX_REPEATED = 2_000_000
# Number of elements in the largest array of arithmetic over pairs of rows: rows squared times classes.
_MAX_NUMBERS = 10_000_000


@dataclass(frozen=True)
class AvailableRows:
    """Labelled predictions of positive weight under a label policy.

    Attributes
    ----------
    probabilities : float64 (n, n_classes)
    share : float64 (n, n_classes), share of each class in the row's label; rows sum to 1
    label_counts : int64 (n, n_classes), all ratings, under any policy
    weight : float64 (n,), under the policy
    unit : int64 (n,), index of each row's unit
    about : description of the rows in the result, JSON-able
    """

    probabilities: Floats
    share: Floats
    label_counts: Ints
    weight: Floats
    unit: Ints
    about: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.weight)


def available_rows(view: View, most: int) -> AvailableRows | None:
    """Return the posted rows, or the stored sample of a window; of more than `most` a uniform subsample of that size, by hash.

    Returns
    -------
    AvailableRows, None if no prediction has a label

    Raises
    ------
    NoResultError
        The window contains plain histograms, or a sample without a row of positive weight.
    """
    view.reject_histograms()
    if not view.counts["n_labelled"]:
        return None
    batch, source = available_batch(view, most)
    batch_sums = BatchSums(batch)
    correct_ratings = batch_sums.correct_ratings
    share = np.zeros((batch_sums.n, batch.n_classes))
    share[correct_ratings.row, correct_ratings.class_index] = batch_sums.policy_weights[view.policy]
    weight = share.sum(axis=1)
    about = {"source": source, "n_sample": batch_sums.n, "n_drawn_from": view.counts["n_labelled"]}
    return AvailableRows(
        batch_sums.batch.probabilities,
        share / weight[:, None],
        batch_sums.batch.label_counts,
        weight,
        _units(batch_sums),
        about,
    )


def _units(batch_sums: BatchSums) -> Ints:
    """Return the index of each row's unit, sorted by hash: draws by unit then do not depend on the order of rows."""
    if batch_sums.has_units:
        return batch_sums.unit_index
    order = np.argsort(batch_sums.batch.prediction_hash, kind="stable")
    place = np.empty(batch_sums.n, np.int64)
    place[order] = np.arange(batch_sums.n)
    return place


def available_batch(view: View, most: int) -> tuple[Batch, str]:
    """Return the labelled predictions of positive weight, as `available_rows`, and their source, "rows" or "sample".

    Raises
    ------
    NoResultError
        As `available_rows`, or no such prediction is available.
    """
    view.reject_histograms()
    batch, counts, source = _available(view)
    weighted = np.ones(batch.n, bool) if batch.weights is None else batch.weights > 0
    keep = np.flatnonzero((batch.row_total > 0) & weighted)
    if not len(keep):
        detail = "no labelled prediction of positive weight is available"
        raise NoResultError("too_few_samples", detail)
    return batch.take(_each(batch, counts, keep, most)), source


def paired_rows(view: View) -> AvailableRows | None:
    """Return as many available rows as can be compared pairwise, and with drawn labels, in a fraction of a second."""
    most = min(MAX_PAIRED, math.isqrt(_MAX_NUMBERS // view.spec.n_classes))
    return view.once("paired rows", lambda: available_rows(view, most))


def drawn_labels(rows: AvailableRows, n_draws: int, seed: int) -> Ints:
    """Draw classes of a calibrated model, one per row, all rows of a unit by one draw; int64 (n_draws, n)."""
    fate = np.random.default_rng(seed).random((n_draws, int(rows.unit.max()) + 1))[:, rows.unit]
    reached = np.cumsum(rows.probabilities, axis=1)
    reached[:, -1] = 1.0
    found = np.empty(fate.shape, np.int64)
    for i in range(len(rows)):
        found[:, i] = np.searchsorted(reached[i], fate[:, i], side="right")
    return np.asarray(np.minimum(found, rows.probabilities.shape[1] - 1))


def drawn_shares(rows: AvailableRows, n_draws: int, seed: int, several: bool) -> Iterator[Floats]:
    """Yield labels' shares of a calibrated model, float64 (n, n_classes), as many times as `n_draws`.

    Parameters
    ----------
    several : whether a row's label is the share of all its ratings: each is then drawn; else one label
    """
    ratings = rows.label_counts.sum(axis=1) if several else np.ones(len(rows), np.int64)
    classes = np.arange(rows.probabilities.shape[1])
    total = np.zeros((n_draws, len(rows), len(classes)), np.float32)
    for rater in range(int(ratings.max())):
        rated = np.flatnonzero(ratings > rater)
        part = replace(
            rows,
            probabilities=rows.probabilities[rated],
            unit=np.unique(rows.unit[rated], return_inverse=True)[1],
            weight=rows.weight[rated],
        )
        total[:, rated] += drawn_labels(part, n_draws, seed + rater)[:, :, None] == classes
    for each in total:
        yield each / ratings[:, None]


def _available(view: View) -> tuple[Batch, Ints, str]:
    """Return predictions, their number of occurrences, and their source."""
    if view.batch_sums is not None:
        batch = view.batch_sums.batch
        return batch, np.ones(batch.n, np.int64), "rows"
    if not view.pane.keeps("sample"):
        detail = "this needs complete predictions; models with so many classes store no sample"
        raise NoResultError("not_sampled", detail)
    sample = view.pane["sample"]
    assert isinstance(sample, Sample)
    counts = sample.arrays()["counts"]
    batch = sample.batch()
    # Weights of a sample include all occurrences; here each occurrence is a separate row.
    return (
        replace(batch, weights=batch.weights / counts if batch.weights is not None else None),
        counts,
        "sample",
    )


def _each(batch: Batch, counts: Ints, keep: Ints, most: int) -> Ints:
    """Return the rows of `keep`, repeated by occurrences; of more than `most` that many, evenly by their hashes.

    Equal rows are drawn apart: together, pairs of equal rows would be as frequent as in all rows instead of by chance.
    """
    rows = np.repeat(keep, bounded(counts[keep]))
    if len(rows) <= most:
        return rows
    hashes = batch.prediction_hash[rows]
    number = occurrences(hashes).astype(np.uint64)
    place = mix(hashes ^ np.uint64(0x3C3C3C3C))
    place = np.where(number > 0, mix(place ^ mix(number)), place)
    chosen = np.floor((np.arange(most) + 0.5) * len(rows) / most).astype(np.int64)
    return np.sort(rows[np.argsort(place, kind="stable")[chosen]])


def bounded(counts: Ints) -> Ints:
    """Return numbers of occurrences with a bounded sum, in proportion.

    >>> bounded(np.array([1, 3])).tolist()
    [1, 3]
    """
    total = int(counts.sum())
    return counts if total <= MAX_REPEATED else np.maximum(counts * MAX_REPEATED // total, 1)
