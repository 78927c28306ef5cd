"""Scores that the alarm monitors: the probability of a class as sent, or mapped by the active calibration map.

A map applies to the complete row, to the top label, to class 1 of two, or to one class. If it does not apply to the subject
of the bets, the probability stays as sent.
"""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.applying import apply
from calibrant.calibrators.base import map_methods
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.documents import FittedMap
from calibrant.core.grid import equal_width_bin
from calibrant.drift.unit_tables import UnitTable, squared_together

OWN_SCORE = "score"


def class_of(scope: str, task: str) -> int | None:
    """Return the class whose probability is bet on; None for each row's top class.

    Parameters
    ----------
    scope : "score" (class 1 of binary models, else the top label) or "class:INDEX"
    task : of the model

    Examples
    --------
    >>> class_of("score", "binary"), class_of("score", "multiclass"), class_of("class:3", "multiclass")
    (1, None, 3)
    """
    if scope != OWN_SCORE:
        return int(scope.partition(":")[2])
    return 1 if task == "binary" else None


def scores_of(batch: Batch, scope: str, fitted: FittedMap | None = None) -> tuple[Floats, Ints]:
    """Return each row's score and its class.

    Parameters
    ----------
    batch : Batch of n rows
    scope : as in `class_of`
    fitted : a map as returned by `calibrators.fit`; None for probabilities as sent

    Returns
    -------
    score float64 (n,) in [0, 1], class int64 (n,)
    """
    class_index, row = class_of(scope, batch.task), np.arange(batch.n)
    maps_all_classes = fitted is not None and fitted["scope"] == "full"
    probabilities = (
        apply(fitted, batch) if fitted is not None and maps_all_classes else batch.probabilities
    )
    chosen = (
        np.argmax(probabilities, axis=1) if class_index is None else np.full(batch.n, class_index)
    )
    score = probabilities[row, chosen]
    if fitted is not None and not maps_all_classes and (side := side_of(fitted, class_index)):
        mapped = apply(fitted, batch)
        score = mapped if side > 0 else 1.0 - mapped
    return np.clip(score, 0.0, 1.0), chosen.astype(np.int64)


def scalar(fitted: FittedMap, scope: str, task: str, score: Floats) -> Floats | None:
    """Return mapped scores from the scores alone, (n,) to (n,); None if the map needs complete rows."""
    if fitted["scope"] == "full":
        return None
    side = side_of(fitted, class_of(scope, task))
    if not side:
        return score
    method = map_methods()[fitted["method"]]
    mapped = method.at_scores(fitted["parameters"], score if side > 0 else 1.0 - score)
    return np.clip(mapped if side > 0 else 1.0 - mapped, 0.0, 1.0)


def side_of(fitted: FittedMap, class_index: int | None) -> int:
    """Return 1 if a map of one probability applies to this class (None: the top label), -1 to its complement, else 0."""
    if fitted["scope"] == "top_label":
        return int(class_index is None)
    named = 1 if fitted["scope"] == "positive" else fitted.get("class")
    if class_index == named:
        return 1
    return -1 if fitted["scope"] == "positive" and class_index == 0 else 0


def table_at(table: UnitTable, score: Floats, bins: int | None = None) -> UnitTable:
    """Return a table with its bins' units moved to other scores, for example mapped ones.

    Parameters
    ----------
    table : UnitTable
    score : float64 (n_bins,), new score of the units of each bin
    bins : number of bins of the result; default: as before

    Returns
    -------
    UnitTable; the sums of squares are upper bounds
    """
    n = bins or table.n_bins
    place = equal_width_bin(score, n)
    columns = (table.weight, table.weight * score, table.correct, table.occupancy)
    weight, confidence, correct, occupancy = (
        np.bincount(place, each, n).astype(np.float64) for each in columns
    )
    return UnitTable(
        weight,
        confidence,
        correct,
        squared_together(table.weight, table.squared, place, n),
        occupancy,
    )
