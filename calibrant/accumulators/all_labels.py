"""Cells of every class's probability in one table, for models with too many classes to store each."""

from __future__ import annotations

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.cells import columns_of_cells
from calibrant.accumulators.ranges import BlockColumns
from calibrant.core.spec import PaneSpec


class AllLabelCells(Accumulator):
    """Union of all classes' tables (KO paper); stored only where the classes' own tables are not."""

    name = "all_labels"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return not spec.keeps_all_classes

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        return {"cells": columns_of_cells(spec.class_grid, times=spec.n_classes)}


ACCUMULATOR = AllLabelCells
