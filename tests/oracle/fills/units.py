"""numpy fill of the accumulator `units`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.block import Block
from calibrant.accumulators.units import UNIT_BINS, UnitSums
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import equal_width_bin
from tests.oracle.derived import score_correct


class Filled(UnitSums):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        block = self.blocks["bins"]
        every = _Occupancy(batch_sums.complete_batch)
        block.counts[0] += np.bincount(every.place, minlength=UNIT_BINS)
        block.sums[0] += np.bincount(every.place, 1.0 / every.unit_size, UNIT_BINS)
        if not batch_sums.n:
            return
        place = equal_width_bin(batch_sums.score, UNIT_BINS, rules=batch_sums.batch.edge_rules)
        block.counts[1] += np.bincount(place, minlength=UNIT_BINS)
        self._fill_predictions(block, batch_sums, place)
        self._fill_ratings(block, batch_sums, place)

    def _fill_predictions(self, block: Block, batch_sums: BatchSums, place: Ints) -> None:
        omega = 1.0 / batch_sums.unit_size
        correct_ratings = score_correct(batch_sums)
        at, weight = place[correct_ratings.row], omega[correct_ratings.row]
        columns = (
            (place, omega),
            (place, omega * batch_sums.score),
            (at, weight * correct_ratings.share),
            (at, weight * correct_ratings.majority),
            (at, weight * correct_ratings.single),
        )
        for i, (where, values) in enumerate(columns, start=1):
            block.sums[i] += np.bincount(where, values, UNIT_BINS)
        block.sums[6] += _squared_by_unit(batch_sums, place, omega)

    def _fill_ratings(self, block: Block, batch_sums: BatchSums, place: Ints) -> None:
        ratings = batch_sums.n_ratings.astype(np.float64)
        of_unit = np.bincount(batch_sums.unit_index, ratings)[batch_sums.unit_index]
        omega = ratings / of_unit
        correct_ratings = score_correct(batch_sums)
        block.sums[7] += np.bincount(place, omega, UNIT_BINS)
        block.sums[8] += np.bincount(place, omega * batch_sums.score, UNIT_BINS)
        block.sums[9] += np.bincount(
            place[correct_ratings.row],
            correct_ratings.ratings / of_unit[correct_ratings.row],
            UNIT_BINS,
        )
        block.sums[10] += _squared_by_unit(batch_sums, place, omega)


class _Occupancy:
    """Bin and unit size of every prediction, labelled or not."""

    def __init__(self, batch: Batch) -> None:
        top = batch.probabilities.max(axis=1)
        score = batch.probabilities[:, 1] if batch.task == "binary" else top
        self.place = equal_width_bin(score, UNIT_BINS, rules=batch.edge_rules)
        self.unit_size = np.ones(batch.n)
        if batch.unit_source in ("unit", "case"):
            index = np.unique(batch.unit_key, return_inverse=True)[1]
            self.unit_size = np.bincount(index)[index].astype(np.float64)


def _squared_by_unit(batch_sums: BatchSums, place: Ints, omega: Floats) -> Floats:
    """Return, per bin, the sum over units of the square of the unit's weight in it."""
    if not batch_sums.has_units:
        return np.bincount(place, omega**2, UNIT_BINS).astype(np.float64)
    pair, index = np.unique(batch_sums.unit_index * UNIT_BINS + place, return_inverse=True)
    weight = np.bincount(index, omega)
    return np.bincount(pair % UNIT_BINS, weight**2, UNIT_BINS).astype(np.float64)
