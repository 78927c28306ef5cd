"""Cells of each stored class's probability, one class against the rest: one table per class.

Where every class is stored, a view adds them to the table of all classes. Elsewhere `all_labels.py` stores that table.
"""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.cells import columns_of_cells
from calibrant.accumulators.ranges import BlockColumns
from calibrant.core.spec import PaneSpec


class ClassCells(Accumulator):
    """One table per stored class, one after another in a single block."""

    name = "classes"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return bool(spec.stored_classes)

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        return {"cells": columns_of_cells(spec.class_grid, len(spec.stored_classes))}


ACCUMULATOR = ClassCells
