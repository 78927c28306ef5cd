"""numpy fill of the accumulator `all_labels`: the specification of the kernel's."""

from __future__ import annotations

from calibrant.accumulators.all_labels import AllLabelCells
from calibrant.core.batch_sums import BatchSums
from tests.oracle.cells import fill_cells


class Filled(AllLabelCells):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        place = self.spec.class_grid.locate(batch_sums.columns, batch_sums.batch.edge_rules)
        correct_ratings = batch_sums.correct_ratings
        correct_place = place[correct_ratings.class_index, correct_ratings.row]
        fill_cells(
            self.blocks["cells"],
            batch_sums,
            place.ravel(),
            batch_sums.columns.ravel(),
            correct_ratings,
            correct_place,
        )
