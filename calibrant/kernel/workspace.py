"""Scratch memory of the kernel for panes of one specification, lent to one fill at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import accumulators
from calibrant.accumulators.entropy_cells import uncertainty_grid
from calibrant.accumulators.label_bins import LABEL_GRID
from calibrant.accumulators.rater_pairs import DISAGREEMENT_GRID
from calibrant.accumulators.replicates import CLASS_BINS
from calibrant.core import grid
from calibrant.core.spec import PaneSpec
from calibrant.kernel.declarations import KernelBlock, blocks, structures
from calibrant.kernel.library import library

# Workspaces of one specification that wait for the next fill; as many fills may run at the same time without making a new one.
MAX_IDLE = 2
BLOCKS = tuple(blocks())
# Arrays of a batch, as `Batch` of the kernel points to them from `scores` on.
N_ARRAYS = 11
Arrays = tuple[NDArray[Any] | None, ...]


class Workspace:
    """Scratch tables for one specification and one set of accumulators.

    Attributes
    ----------
    library : its functions
    blocks : by accumulator, the blocks that it fills: place in `BLOCKS`, block and size
    n_touched : touched cells by block of `BLOCKS`, written by each fill
    rows, pointers : the batch of a fill, and the addresses of its arrays in it
    """

    def __init__(self, spec: PaneSpec, only: frozenset[str] | None) -> None:
        found = self.library = library()
        sizes = {
            block: size
            for block, size in shapes_of(spec).items()
            if only is None or block.accumulator in only
        }
        self.names = frozenset(block.accumulator for block in sizes)
        self.blocks = [(name, _of_accumulator(name, sizes)) for name in sorted(self.names)]
        self.n_touched = (ctypes.c_int64 * len(BLOCKS))()
        batch = structures()["Batch"]
        self.rows: Any = batch()
        self.pointers: Any = (ctypes.c_void_p * N_ARRAYS).from_buffer(
            self.rows, batch.scores.offset
        )
        self._arrays: list[NDArray[Any]] = []
        model = self._model(spec)
        shapes = (structures()["Shape"] * len(BLOCKS))(
            *((block.n_counts, block.n_sums, sizes.get(block, 0)) for block in BLOCKS)
        )
        self.handle = found.calibrant_kernel_new(ctypes.byref(model), shapes)
        if not self.handle:
            raise MemoryError("the kernel has no memory for its scratch tables")

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.calibrant_kernel_free(self.handle)

    def _pointer(self, array: NDArray[Any]) -> int:
        """Return the address of an array's data, and keep the array as long as the workspace."""
        array = np.ascontiguousarray(array)
        self._arrays.append(array)
        return array.ctypes.data

    def _grid(self, of: grid.Grid) -> Any:
        return structures()["Grid"](of.cells, of.refinement, self._pointer(of.lower))

    def _model(self, spec: PaneSpec) -> Any:
        listed, fine = spec.stored_classes, spec.class_grid
        slots = np.full(spec.n_classes, -1, np.int64)
        slots[list(listed)] = np.arange(len(listed))
        has_labels, has_bins = not fine.cells % LABEL_GRID.cells, not fine.cells % CLASS_BINS
        return structures()["Model"](
            spec.n_classes,
            spec.task == "binary",
            len(listed),
            self._pointer(slots),
            self._pointer(fine.on(LABEL_GRID)) if has_labels else None,
            self._pointer(fine.bins(CLASS_BINS)) if has_bins else None,
            *map(self._grid, (spec.top_grid, fine, LABEL_GRID, DISAGREEMENT_GRID, uncertainty_grid())),
            float(np.log(spec.n_classes)),
        )  # fmt: skip


@lru_cache(maxsize=8)
def idle_workspaces(spec: PaneSpec, only: frozenset[str] | None) -> list[Workspace]:
    """Return the workspaces of a specification whose tables are zero, to take from and give back to.

    Appending to a list and popping from it are single steps in Python. The workspaces of the least recently used
    specifications are freed.
    """
    return []


def _of_accumulator(
    name: str, sizes: Mapping[KernelBlock, int]
) -> list[tuple[int, KernelBlock, int]]:
    return [
        (place, block, sizes[block])
        for place, block in enumerate(BLOCKS)
        if block.accumulator == name and block in sizes
    ]


def shapes_of(spec: PaneSpec) -> dict[KernelBlock, int]:
    """Return the blocks that the kernel fills in panes of a specification, with their sizes.

    An accumulator with a block or a number of columns that the kernel does not know is not filled by it.
    """
    found: dict[KernelBlock, int] = {}
    for name in dict.fromkeys(block.accumulator for block in BLOCKS):
        if not accumulators()[name].applies(spec):
            continue
        blocks = accumulators()[name](spec).blocks
        known = {block.name: block for block in BLOCKS if block.accumulator == name}
        if all(
            block in known and (each.n_counts, each.n_sums) == known[block][2:]
            for block, each in blocks.items()
        ):
            found |= {known[block]: each.size for block, each in blocks.items()}
    return found
