"""Sums of ratings and residuals by class and by 60 bins of its probability, for the debiased calibration loss.

The cells already give sums and squares of the shares of ratings for weight one per prediction. This accumulator stores the squares
for weight n_i, the residuals (share minus probability), and the predictions with one rating separately, so that they can be left
out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import (
    MAX_MASS,
    SQUARED_MASS,
    Range,
    Ranges,
    square_of,
    weight_of,
    within,
)
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import Grid
from calibrant.core.spec import PaneSpec

LABEL_GRID = Grid(60, refinement=1)
COUNTS = ("predictions", "one_vote")
SUMS = (
    "ratings_squared",  # (w n)^2
    "correct_ratings_squared",  # (w n)^2 mu
    "correct_squared_ratings_squared",  # (w n mu)^2
    "residual",  # w^2 (mu - z)
    "residual_squared",  # (w (mu - z))^2
    "one_weight",
    "one_confidence",
    "one_correct",
    "one_weight_squared",
    "one_correct_weight_squared",  # w^2 y
)
RANGES = {
    "ratings_squared": SQUARED_MASS,
    "correct_ratings_squared": within("ratings_squared"),
    "correct_squared_ratings_squared": within("correct_ratings_squared"),
    "residual": Range(-(MAX_MASS**2), MAX_MASS**2),
    "residual_squared": SQUARED_MASS,
    "one_weight": weight_of("one_vote"),
    "one_confidence": within("one_weight"),
    "one_correct": within("one_weight"),
    "one_weight_squared": square_of("one_weight"),
    "one_correct_weight_squared": within("one_weight_squared"),
}
_AT = {name: i for i, name in enumerate(SUMS)}
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class LabelBins(Accumulator):
    """One table per class, positions of `LABEL_GRID`, class after class; stored where all classes have cells."""

    name = "label_bins"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.keeps_all_classes

    def zero(self) -> dict[str, Block]:
        size = self.spec.n_classes * LABEL_GRID.n_positions
        return {"bins": Block(len(COUNTS), len(SUMS), size)}

    def ranges(self) -> dict[str, Ranges]:
        totals = {"predictions": "n_labelled", "one_vote": "n_one_rating"}
        return {
            "bins": Ranges(
                COUNTS,
                SUMS,
                RANGES,
                {"one_vote": within("predictions")},
                totals,
                self.spec.n_classes,
            )
        }

    def fill(self, batch_sums: BatchSums) -> None:
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

    def _positions(self, batch_sums: BatchSums) -> Ints:
        """Return the position of every class's probability, from the finer grid where it has these cells."""
        fine = self.spec.class_grid
        if fine.cells % LABEL_GRID.cells:
            return batch_sums.places(LABEL_GRID)
        return np.take(fine.on(LABEL_GRID), batch_sums.places(fine))

    def _fill_moments(self, block: Block, batch_sums: BatchSums, place: Ints) -> None:
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
        self, block: Block, batch_sums: BatchSums, place: Ints, one: NDArray[np.bool_]
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


ACCUMULATOR = LabelBins
