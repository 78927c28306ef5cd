"""Cells of each stored class's probability, one class against the rest: one table per class.

Where every class is stored, a view adds them to the table of all classes. Elsewhere `all_labels.py` stores that table.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.cells import empty_cells, fill_cells, ranges_of_cells
from calibrant.accumulators.ranges import Ranges, grid_edges
from calibrant.core.batch_sums import BatchSums
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

    def fill(self, batch_sums: BatchSums) -> None:
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


ACCUMULATOR = ClassCells
