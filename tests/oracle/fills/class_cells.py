"""numpy fill of the accumulator `class_cells`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.class_cells import ClassCells
from tests.oracle.batch_sums import FillSums
from tests.oracle.cells import fill_cells


class Filled(ClassCells):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
        stored = np.array(self.spec.stored_classes)
        is_complete = self.spec.keeps_all_classes
        scores = batch_sums.columns if is_complete else batch_sums.columns[stored]
        grid = self.spec.class_grid
        place = (
            batch_sums.places(grid)
            if is_complete
            else grid.locate(scores, batch_sums.batch.edge_rules)
        )
        place = place + grid.n_positions * np.arange(len(stored))[:, None]
        slot = np.full(self.spec.n_classes, -1)
        slot[stored] = np.arange(len(stored))
        correct_ratings = (
            batch_sums.correct_ratings
            if is_complete
            else batch_sums.correct_ratings.where(slot[batch_sums.correct_ratings.class_index] >= 0)
        )
        correct_place = place[slot[correct_ratings.class_index], correct_ratings.row]
        fill_cells(
            self.blocks["cells"],
            batch_sums,
            place.ravel(),
            scores.ravel(),
            correct_ratings,
            correct_place,
        )
