"""numpy fill of the accumulator `label_bins`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.accumulators.label_bins import LABEL_GRID, SUMS, LabelBins
from calibrant.core.arrays import Floats, Ints
from tests.oracle.batch_sums import FillSums

_AT = {name: i for i, name in enumerate(SUMS)}


class Filled(LabelBins):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
        if not batch_sums.n:
            return
        block = self.blocks["bins"]
        start = LABEL_GRID.n_positions * np.arange(self.spec.n_classes)[:, None]
        place = self._positions(batch_sums) + start
        count = np.bincount(place.ravel(), minlength=block.size)
        block.counts[0] += count
        constant = batch_sums.constant_ratings
        if constant is not None:
            block.sums[_AT["ratings_squared"]] += constant**2 * count
        else:
            ratings = (batch_sums.weights * batch_sums.n_ratings) ** 2
            _add(block, "ratings_squared", place, np.broadcast_to(ratings, place.shape))
        self._fill_moments(block, batch_sums, place)
        one = batch_sums.n_ratings == 1
        if one.any():
            self._fill_one_rating(block, batch_sums, place, one)

    def _positions(self, batch_sums: FillSums) -> Ints:
        """Return the position of every class's probability, from the finer grid where it has these cells."""
        fine = self.spec.class_grid
        if fine.cells % LABEL_GRID.cells:
            return batch_sums.places(LABEL_GRID)
        return np.take(fine.on(LABEL_GRID), batch_sums.places(fine))

    def _fill_moments(self, block: Block, batch_sums: FillSums, place: Ints) -> None:
        correct_ratings = batch_sums.correct_ratings
        at = place[correct_ratings.class_index, correct_ratings.row]
        score = batch_sums.columns[correct_ratings.class_index, correct_ratings.row]
        square = batch_sums.weights**2
        ratings = square * batch_sums.n_ratings.astype(np.float64) ** 2
        of_correct = ratings[correct_ratings.row]
        _add(block, "correct_ratings_squared", at, of_correct * correct_ratings.share)
        _add(
            block,
            "correct_squared_ratings_squared",
            at,
            square[correct_ratings.row] * correct_ratings.ratings**2,
        )
        spread = square * batch_sums.columns
        share = square[correct_ratings.row] * correct_ratings.share
        _add(block, "residual", place, -spread)
        _add(block, "residual", at, share)
        _add(block, "residual_squared", place, spread * batch_sums.columns)
        _add(block, "residual_squared", at, share * (correct_ratings.share - 2.0 * score))

    def _fill_one_rating(
        self, block: Block, batch_sums: FillSums, place: Ints, one: NDArray[np.bool_]
    ) -> None:
        correct_ratings = batch_sums.correct_ratings.where(one[batch_sums.correct_ratings.row])
        at, weight, score = place[:, one], batch_sums.weights[one], batch_sums.columns[:, one]
        of_correct, correct_at = (
            batch_sums.weights[correct_ratings.row],
            place[correct_ratings.class_index, correct_ratings.row],
        )
        count = np.bincount(at.ravel(), minlength=block.size)
        block.counts[1] += count
        if batch_sums.batch.weights is None:
            block.sums[_AT["one_weight"]] += count
            block.sums[_AT["one_weight_squared"]] += count
        else:
            _add(block, "one_weight", at, np.broadcast_to(weight, at.shape))
            _add(block, "one_weight_squared", at, np.broadcast_to(weight**2, at.shape))
        _add(block, "one_confidence", at, weight * score)
        _add(block, "one_correct", correct_at, of_correct)
        _add(block, "one_correct_weight_squared", correct_at, of_correct**2)


def _add(block: Block, name: str, place: Ints, values: Floats) -> None:
    block.sums[_AT[name]] += np.bincount(place.ravel(), values.ravel(), block.size)
