"""Sums of a batch that only the numpy fills read."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import Grid
from calibrant.core.label_policies import N_POLICIES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FillSums(BatchSums):
    """Labelled predictions with what more than one fill reads."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._known: dict[Grid, Ints] = {}

    def places(self, grid: Grid) -> Ints:
        """Return the position of every class's probability on a grid, int64 (n_classes, n), computed once."""
        if grid not in self._known:
            self._known[grid] = grid.locate(self.columns, self.batch.edge_rules)
        return self._known[grid]

    @cached_property
    def row_scores(self) -> tuple[Floats, Floats]:
        """Every prediction's samples and losses by policy.

        Returns
        -------
        counts float64 (3, policies, n): samples, predictions, ratings at probability 0
        sums float64 (5, policies, n): weight, weight of the finite, Brier, NLL of the finite, correct
        """
        correct_ratings, n, weights = self.correct_ratings, self.n, self.weights
        finite = np.isfinite(self.log_probability)
        loss = np.where(finite, -self.log_probability, 0.0)
        brier = self.squares + 1.0
        top = self.top_correct

        def by_row(row: Ints, values: Floats) -> Floats:
            return np.bincount(row, values, n).astype(np.float64)

        sums, counts = np.empty((5, N_POLICIES, n)), np.ones((3, N_POLICIES, n))
        counts[0, 0] = ratings = self.n_ratings.astype(np.float64)
        counts[2, 0] = counts[2, 1] = by_row(
            correct_ratings.row[~finite], correct_ratings.ratings[~finite]
        )
        sums[:, 0] = (
            ratings,
            ratings - counts[2, 0],
            ratings * brier - 2.0 * self.rated_probability,
            by_row(correct_ratings.row, correct_ratings.ratings * loss),
            by_row(top.row, top.ratings),
        )
        sums[:, 1] = sums[:, 0] / ratings
        for policy, chosen in ((2, correct_ratings.majority), (3, correct_ratings.single)):
            entry = np.flatnonzero(chosen)  # one per row
            counts[2, policy] = ~finite[entry]
            correct = correct_ratings.class_index[entry] == self.top_class
            own_brier = brier - 2.0 * self.correct_probability[entry]
            sums[:, policy] = (np.ones(n), finite[entry], own_brier, loss[entry], correct)
        return counts, sums if self.batch.weights is None else sums * weights
