"""Cells of every class's probability in one table, for models with too many classes to store each."""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.cells import empty_cells, ranges_of_cells
from calibrant.accumulators.ranges import Ranges, grid_edges
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


ACCUMULATOR = AllLabelCells
