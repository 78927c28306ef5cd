"""Cells of each stored class's probability, one class against the rest: one table per class.

Where every class is stored, a view adds them to the table of all classes. Elsewhere `all_labels.py` stores that table.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.cells import empty_cells, ranges_of_cells
from calibrant.accumulators.ranges import Ranges, grid_edges
from calibrant.core.spec import PaneSpec


class ClassCells(Accumulator):
    """One table per stored class, one after another in a single block."""

    name = "classes"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return bool(spec.stored_classes)

    def zero(self) -> dict[str, Block]:
        return {
            "cells": empty_cells(len(self.spec.stored_classes) * self.spec.class_grid.n_positions)
        }

    def ranges(self) -> dict[str, Ranges]:
        return {
            "cells": ranges_of_cells(
                len(self.spec.stored_classes), grid_edges(self.spec.class_grid)
            )
        }


ACCUMULATOR = ClassCells
