"""What is bet on: the probability of a class as it was sent, or as the calibration map in force makes it.

A map speaks of the whole row, of the top label, of class 1 of two, or of one class. Where it does not speak of what is
bet on, the probability stays as it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.fitting import apply
from calibrant.calibrators.registry import found
from calibrant.core.batch import Batch
from calibrant.core.grid import equal_width_bin
from calibrant.drift.unit_tables import UnitTable, squared_together

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Fitted = Mapping[str, Any]
OWN_SCORE = "score"


def class_of(scope: str, task: str) -> int | None:
    """The class whose probability is bet on; None where it is each row's top class.

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


def scores_of(batch: Batch, scope: str, fitted: Fitted | None = None) -> tuple[Floats, Ints]:
    """Each row's score and the class that it speaks of.

    Parameters
    ----------
    batch : Batch of n rows
    scope : as in `class_of`
    fitted : a map as `maps.fit` answered it; None for probabilities as they were sent

    Returns
    -------
    score float64 (n,) in [0, 1], class int64 (n,)
    """
    klass, row = class_of(scope, batch.task), np.arange(batch.n)
    whole = fitted is not None and fitted["scope"] == "full"
    probabilities = apply(fitted, batch) if fitted is not None and whole else batch.probabilities
    chosen = np.argmax(probabilities, axis=1) if klass is None else np.full(batch.n, klass)
    score = probabilities[row, chosen]
    if fitted is not None and not whole and (side := side_of(fitted, klass)):
        mapped = apply(fitted, batch)
        score = mapped if side > 0 else 1.0 - mapped
    return np.clip(score, 0.0, 1.0), chosen.astype(np.int64)


def scalar(fitted: Fitted, scope: str, task: str, score: Floats) -> Floats | None:
    """Mapped scores from the scores alone, (n,) to (n,); None where the map needs whole rows."""
    if fitted["scope"] == "full":
        return None
    side = side_of(fitted, class_of(scope, task))
    if not side:
        return score
    method = found()[fitted["method"]]
    mapped = method.at_scores(fitted["parameters"], score if side > 0 else 1.0 - score)
    return np.clip(mapped if side > 0 else 1.0 - mapped, 0.0, 1.0)


def side_of(fitted: Fitted, klass: int | None) -> int:
    """1 where a map of one probability speaks of this class (None: the top label), -1 of its complement, else 0."""
    if fitted["scope"] == "top_label":
        return int(klass is None)
    named = 1 if fitted["scope"] == "positive" else fitted.get("class")
    if klass == named:
        return 1
    return -1 if fitted["scope"] == "positive" and klass == 0 else 0


def table_at(table: UnitTable, score: Floats, bins: int | None = None) -> UnitTable:
    """A table with its bins' units at other scores: those of the bins as a map makes them, say.

    Parameters
    ----------
    table : UnitTable
    score : float64 (n_bins,), where the units of each bin are now
    bins : of the result, as many as before without it

    Returns
    -------
    UnitTable; the sums of squares are the most that they can be
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
