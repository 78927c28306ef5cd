"""Cells of every class's probability in one table, for models with too many classes to store each."""

from __future__ import annotations

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.cells import empty_cells, fill_cells, ranges_of_cells
from calibrant.accumulators.ranges import Ranges, grid_edges
from calibrant.core.batch_sums import BatchSums
from calibrant.core.spec import PaneSpec


class AllLabelCells(Accumulator):
    """Union of all classes' tables (KO paper); stored only where the classes' own tables are not."""

    name = "all_labels"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return not spec.keeps_all_classes

    def zero(self) -> dict[str, Block]:
        return {"cells": empty_cells(self.spec.class_grid.n_positions)}

    def ranges(self) -> dict[str, Ranges]:
        return {"cells": ranges_of_cells(self.spec.n_classes, grid_edges(self.spec.class_grid))}

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


ACCUMULATOR = AllLabelCells
