"""Unit table of a cohort from its rows: for units that share rows across panes, bets on classes, or mapped scores.

A pane stores by unit only its own score, within one pane. Rows retained by id give the same table exactly, and more: all
rows of a unit in the cohort share the unit's weight of one, for any class and any map.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import FittedMap
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import POLICIES
from calibrant.drift.mapped_scores import scores_of
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def row_table(
    batch: Batch, scope: str, raters: str, fitted: FittedMap | None = None, bins: int = DRIFT_BINS
) -> tuple[UnitTable, Ints]:
    """Return the unit-weighted table of a complete cohort's rows.

    Parameters
    ----------
    batch : Batch, each row of the cohort once; `units` (or cases) name what is independent
    scope : "score" or "class:INDEX"
    raters : label policy
    fitted : active calibration map, None for scores as sent
    bins : bins of the score

    Returns
    -------
    UnitTable, and predictions and labelled predictions by bin, int64 (2, bins)

    Examples
    --------
    >>> columns = {"confidences": [0.9, 0.85, 0.1], "labels": [1, 0, 0], "units": ["a", "a", "b"]}
    >>> table, counts = row_table(Batch.from_columns(columns, task="binary").batch, "score", "mean")
    >>> table.weight[[1, 12, 13]].tolist(), table.n_units, counts.sum(axis=1).tolist()
    ([1.0, 0.5, 0.5], 2.0, [3, 3])
    """
    batch_sums = BatchSums(batch)
    score, class_index = scores_of(batch, scope, fitted)
    everywhere = equal_width_bin(score, bins)
    known = batch_sums.labelled
    place, score, class_index = everywhere[known], score[known], class_index[known]
    counts = np.stack([np.bincount(everywhere, minlength=bins), np.bincount(place, minlength=bins)])
    omega, label = _weights(batch_sums, raters), _labels(batch_sums, class_index, raters)
    table = UnitTable(
        _summed(place, omega, bins),
        _summed(place, omega * score, bins),
        _summed(place, omega * label, bins),
        _squared(batch_sums.unit_index, place, omega, bins),
        _summed(everywhere, 1.0 / _unit_size(batch), bins),
    )
    return table, counts.astype(np.int64)


def _summed(place: Ints, values: Floats, bins: int) -> Floats:
    return np.bincount(place, values, bins).astype(np.float64)


def _unit_size(batch: Batch) -> Floats:
    """Return the number of rows that share each row's unit, including unlabelled ones."""
    if batch.unit_source not in ("unit", "case"):
        return np.ones(batch.n)
    index = np.unique(batch.unit_hash, return_inverse=True)[1]
    return np.bincount(index)[index].astype(np.float64)


def _weights(batch_sums: BatchSums, raters: str) -> Floats:
    """Return each labelled row's share of its unit: by rows, under `pooled` by ratings."""
    if raters != POLICIES[0]:
        return np.asarray(1.0 / batch_sums.unit_size)
    ratings = batch_sums.n_ratings.astype(np.float64)
    return np.asarray(ratings / np.bincount(batch_sums.unit_index, ratings)[batch_sums.unit_index])


def _labels(batch_sums: BatchSums, class_index: Ints, raters: str) -> Floats:
    """Return each labelled row's label of its class, in [0, 1]."""
    correct_ratings = batch_sums.correct_ratings.where(
        batch_sums.correct_ratings.class_index == class_index[batch_sums.correct_ratings.row]
    )
    named = {"majority": correct_ratings.majority, "single": correct_ratings.single}
    return np.bincount(
        correct_ratings.row, named.get(raters, correct_ratings.share), batch_sums.n
    ).astype(np.float64)


def _squared(unit: Ints, place: Ints, omega: Floats, bins: int) -> Floats:
    """Per bin, the sum over units of the square of the unit's weight in it."""
    pair, index = np.unique(unit * bins + place, return_inverse=True)
    return np.bincount(pair % bins, np.bincount(index, omega, len(pair)) ** 2, bins).astype(
        np.float64
    )
