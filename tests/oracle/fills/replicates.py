"""numpy fill of the accumulator `replicates`: the specification of the kernel's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.accumulators.replicates import (
    CLASS_BINS,
    SCORE_BINS,
    SCORE_SUMS,
    Replicates,
    n_pairs,
    pair_places,
)
from calibrant.core.arrays import Floats, Ints, distinct
from calibrant.core.batch_sums import CorrectRatings
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import N_POLICIES
from tests.oracle.batch_sums import FillSums
from tests.oracle.derived import score_correct


class Filled(Replicates):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
        if not batch_sums.n:
            return
        rules = batch_sums.batch.edge_rules
        bins = equal_width_bin(batch_sums.score, SCORE_BINS, rules=rules)
        place = batch_sums.replicate * SCORE_BINS + bins
        correct_ratings = score_correct(batch_sums)
        fill_table(
            self.blocks["tables"],
            batch_sums,
            place,
            batch_sums.score,
            correct_ratings,
            place[correct_ratings.row],
        )
        if "unit_products" in self.blocks:
            _add_products(
                self.blocks["unit_products"], batch_sums, place % SCORE_BINS, SCORE_BINS, 0
            )
        if "classes" in self.blocks:
            self._fill_classes(batch_sums)
        self._fill_scores(batch_sums)

    def _fill_classes(self, batch_sums: FillSums) -> None:
        n_classes, bins = self.spec.n_classes, self._class_bins(batch_sums)
        if "class_unit_products" in self.blocks:
            for class_index in range(n_classes):
                start = class_index * n_pairs(CLASS_BINS)
                _add_products(
                    self.blocks["class_unit_products"],
                    batch_sums,
                    bins[class_index],
                    CLASS_BINS,
                    start,
                )
        first = (batch_sums.replicate * n_classes + np.arange(n_classes)[:, None]) * CLASS_BINS
        place = first + bins
        correct_ratings = batch_sums.correct_ratings
        correct_place = place[correct_ratings.class_index, correct_ratings.row]
        fill_table(
            self.blocks["classes"],
            batch_sums,
            place.ravel(),
            batch_sums.columns.ravel(),
            correct_ratings,
            correct_place,
        )

    def _class_bins(self, batch_sums: FillSums) -> Ints:
        """Return the bin of every class's probability, from the finer grid where it has these bins."""
        fine = self.spec.class_grid
        if fine.cells % CLASS_BINS:
            return equal_width_bin(
                batch_sums.columns, CLASS_BINS, rules=batch_sums.batch.edge_rules
            )
        return np.take(fine.bins(CLASS_BINS), batch_sums.places(fine))

    def _fill_scores(self, batch_sums: FillSums) -> None:
        sums = batch_sums.row_scores[1]
        block = self.blocks["scores"]
        for policy in range(N_POLICIES):
            place = batch_sums.replicate * N_POLICIES + policy
            block.counts[0] += np.bincount(place, minlength=block.size)
            for i in range(len(SCORE_SUMS)):
                block.sums[i] += np.bincount(place, sums[i, policy], block.size)
        if "score_nulls" in self.blocks:
            self._fill_nulls(batch_sums)

    def _fill_nulls(self, batch_sums: FillSums) -> None:
        block, per_row = (
            self.blocks["score_nulls"],
            (1.0 - batch_sums.squares, batch_sums.confidence),
        )
        for policy in range(N_POLICIES):
            place = batch_sums.replicate * N_POLICIES + policy
            weight = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
            block.counts[0] += np.bincount(place, minlength=block.size)
            for column, values in zip(block.sums, per_row, strict=True):
                column += np.bincount(place, weight * values, block.size)


def _add_products(block: Block, batch_sums: FillSums, at: Ints, bins: int, start: int) -> None:
    """Add the products of each unit's weights in every pair of bins.

    Parameters
    ----------
    at : int64 (n,), bin of each row
    start : place of the table's first pair
    """
    weights = batch_sums.weights
    columns = (weights * batch_sums.n_ratings, weights)
    place = start + pair_places(at, at, bins)
    predictions = np.bincount(place, minlength=block.size)
    block.counts[1] += predictions
    if not batch_sums.has_units:
        block.counts[0] += predictions
        for sums, weight in zip(block.sums, columns, strict=True):
            sums += np.bincount(place, weight**2, block.size)
        return
    cell, index = distinct(batch_sums.unit_index * bins + at, batch_sums.n_units * bins)
    unit, place = np.divmod(cell, bins)
    of_cell = [np.bincount(index, weight).astype(np.float64) for weight in columns]
    # Cells of a unit are adjacent, so that all pairs of its cells are found by their distance.
    for distance in range(min(bins, len(cell))):
        first = np.flatnonzero(unit[: len(unit) - distance] == unit[distance:])
        if not len(first):
            return
        pair = start + pair_places(place[first], place[first + distance], bins)
        block.counts[0] += np.bincount(pair, minlength=block.size)
        for sums, weight in zip(block.sums, of_cell, strict=True):
            sums += np.bincount(pair, weight[first] * weight[first + distance], block.size)


def fill_table(
    block: Block,
    batch_sums: FillSums,
    place: Ints,
    score: Floats,
    correct_ratings: CorrectRatings,
    correct_place: Ints,
) -> None:
    """Add (prediction, class) pairs to a table with the columns of `TABLE_SUMS`: `cells.fill_cells` with fewer sums."""
    size = block.size
    n = np.bincount(place, minlength=size)
    block.counts[0] += n
    constant = batch_sums.constant_ratings
    if constant is not None:
        confidence = np.bincount(place, score, size)
        block.sums[:4] += np.stack([constant * n, n, constant * confidence, confidence])
    else:
        weight = np.resize(batch_sums.weights, len(place))
        pooled = np.resize(batch_sums.weights * batch_sums.n_ratings, len(place))
        for i, values in enumerate((pooled, weight, pooled * score, weight * score)):
            block.sums[i] += np.bincount(place, values, size)
    of_correct = batch_sums.weights[correct_ratings.row]
    shares: tuple[NDArray[Any], ...] = (
        correct_ratings.ratings,
        correct_ratings.share,
        correct_ratings.majority,
        correct_ratings.single,
    )
    for i, share in enumerate(shares):
        block.sums[4 + i] += np.bincount(correct_place, of_correct * share, size)
