"""The unit-weighted table of a cohort, the input of comparisons, evidence and effects.

Each independent unit has weight one in total, distributed over its contributions, so that pixels, ratings and
repeated images of one patient count once. Tables of disjoint units add. A sealed cohort consists of its tables by
label policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import ArrayLike

from calibrant.accumulators.units import SUMS, UNIT_BINS
from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.raters.label_coverage import label_counts

DRIFT_BINS = 15


@dataclass(frozen=True)
class UnitTable:
    """Unit-weighted sums by equal-width bin of the score; each float64 (n_bins,)."""

    weight: Floats  # labelled units; a unit's contributions share a weight of one
    confidence: Floats  # confidence, correct: sums of weight · score and weight · label
    correct: Floats
    squared: Floats  # sum over units of the square of the unit's weight in the bin; an upper bound for merged bins
    occupancy: Floats  # units by bin of the score, labelled or not
    # predictions, labelled: predictions by bin of the score, and those with labels; 0 if they are not counted
    predictions: Floats = field(default_factory=lambda: np.zeros(1))
    labelled: Floats = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def empty(cls, bins: int = DRIFT_BINS) -> UnitTable:
        """Return a table without units."""
        return cls(*np.zeros((len(fields(cls)), bins)))

    def counted(self, counts: ArrayLike) -> UnitTable:
        """Return the table with its predictions and labelled predictions, (2, n_bins)."""
        predictions, labelled = np.asarray(counts, np.float64)
        return replace(self, predictions=predictions, labelled=labelled)

    @classmethod
    def at_scores(
        cls, score: Floats, weight: Floats, correct: Floats, bins: int = DRIFT_BINS
    ) -> UnitTable:
        """Return a table of labelled units at one score each: their number and their labels, each float64 (n,).

        Scores and labels that exceed their bounds by rounding are moved to them.

        >>> UnitTable.at_scores(np.array([0.1, 0.2, 0.9]), np.ones(3), np.array([0.0, 1.0, 1.0]), 2).correct.tolist()
        [1.0, 1.0]
        """
        return cls(weight, weight, np.clip(correct, 0.0, weight), weight, weight).moved(score, bins)

    def moved(self, score: Floats, bins: int = DRIFT_BINS) -> UnitTable:
        """Return the table with each bin's units at other scores, for example mapped ones; squares are upper bounds."""
        score = np.clip(score, 0.0, 1.0)
        place = equal_width_bin(score, bins)
        sums = (self.weight, self.weight * score, self.correct, self.occupancy)
        weight, confidence, correct, occupancy = (
            np.bincount(place, each, bins).astype(np.float64) for each in sums
        )
        squared = squared_together(self.weight, self.squared, place, bins)
        return UnitTable(weight, confidence, correct, squared, occupancy)

    @property
    def ece(self) -> float | None:
        """Expected calibration error of the bins, in probability; None without labelled units.

        >>> UnitTable.at_scores(np.array([0.1, 0.9]), np.ones(2), np.array([0.0, 0.0]), 2).ece
        0.5
        """
        n = self.weight.sum()
        return float(np.abs(self.correct - self.confidence).sum() / n) if n else None

    @property
    def n_bins(self) -> int:
        return len(self.weight)

    @property
    def columns(self) -> Floats:
        """All sums, float64 (7, n_bins), in the order of the fields."""
        return np.stack(np.broadcast_arrays(*(getattr(self, each.name) for each in fields(self))))

    @property
    def n_units(self) -> float:
        """Labelled units."""
        return float(self.weight.sum())

    @property
    def labelled_share(self) -> float:
        """Share of the predictions with labels; 1 without predictions."""
        total = self.predictions.sum()
        return float(self.labelled.sum() / total) if total else 1.0

    @property
    def gap(self) -> Floats:
        """Accuracy minus mean confidence; 0 in empty bins."""
        return ratio(self.correct - self.confidence, self.weight)

    @property
    def mean_confidence(self) -> Floats:
        """Mean score of each bin, 0 in empty bins."""
        return ratio(self.confidence, self.weight)


def merged(tables: Iterable[UnitTable], bins: int = DRIFT_BINS) -> UnitTable:
    """Return the table of several disjoint sets of units; without tables, an empty one with `bins` bins.

    ValueError: Tables of different numbers of bins.

    >>> ones = UnitTable(*np.ones((5, 3)))
    >>> merged([ones, ones]).weight.tolist()
    [2.0, 2.0, 2.0]
    """
    columns = [table.columns for table in tables]
    return UnitTable(*np.sum(columns, axis=0)) if columns else UnitTable.empty(bins)


def unit_table(pane: Pane, raters: str, bins: int = DRIFT_BINS) -> UnitTable:
    """Return the unit-weighted table of a pane under a policy.

    Sums that exceed their bounds by rounding are moved to them.

    bins : a divisor of 60
    """
    fine = dict(zip(SUMS, pane["units"].blocks["bins"].sums, strict=True))
    named = {name: values.reshape(bins, -1).sum(axis=1) for name, values in fine.items()}
    suffix = "_pooled" if raters == POLICIES[0] else ""
    coarse = np.arange(UNIT_BINS) // (UNIT_BINS // bins)
    weight = np.maximum(named["weight" + suffix], 0.0)
    return UnitTable(
        weight,
        np.clip(named["confidence" + suffix], 0.0, weight),
        np.clip(named["correct_" + raters], 0.0, weight),
        squared_together(
            np.maximum(fine["weight" + suffix], 0.0), fine["weight_squared" + suffix], coarse, bins
        ),
        np.maximum(named["occupancy"], 0.0),
        *label_counts(pane, bins).astype(np.float64),
    )


def squared_together(weight: Floats, squared: Floats, place: Ints, bins: int) -> Floats:
    """Return the upper bound of `UnitTable.squared` for merged bins, float64 (bins,).

    It is unknown which units share bins. By Minkowski's inequality, the root of the merged sum is at most the sum of the
    roots, with equality if each unit has equal contributions in all bins. No unit weighs more than one, so squares add to
    at most the weight, with equality if each unit contributes once.

    weight, squared, place : (n,), of the fine bins, with the coarse bin of each
    """
    root = np.bincount(place, np.sqrt(np.maximum(squared, 0.0)), bins)
    return np.asarray(np.minimum(root**2, np.bincount(place, weight, bins)))
