"""Stored cells of a pane, as a query sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from calibrant.core.arrays import Floats, Ints
from calibrant.core.cells import Cells, under_policy
from calibrant.core.errors import NoResultError
from calibrant.core.pane import Pane
from calibrant.core.view_histograms import HistogramView

T = TypeVar("T")


class StoredCellsView(HistogramView):
    """Base of `View`: the pane's cells of a scope under the query's label policy, read once."""

    policy: int
    _made: dict[Any, Any]

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Compute `make` once per view and share it between metrics."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def forget(self, key: Any) -> None:
        """Drop what `once` computed, where it takes much memory and nothing else needs it."""
        self._made.pop(key, None)

    def _stored_cells(self, scope: str) -> tuple[Ints, Cells]:
        """Return the non-empty cells of a scope under the policy, and their places on its grid."""
        return self.once(("kept", scope), lambda: self._read_stored_cells(scope))

    def _read_stored_cells(self, scope: str) -> tuple[Ints, Cells]:
        kind, _, name = scope.partition(":")
        if kind == "class":
            return self._class_cells(int(name))
        if kind == "all" and self.spec.keeps_all_classes:
            return self._cells_of_any_class()
        block = self.pane["all_labels" if kind == "all" else kind].blocks["cells"]
        places, counts, sums = block.filled()
        return places, self._under_policy(scope, places, counts, sums)

    def _under_policy(self, scope: str, places: Ints, counts: Ints, sums: Floats) -> Cells:
        grid = self.spec.grid_for(scope)
        return under_policy(self.policy, grid.lower[places], grid.upper[places], counts, sums)

    def _stored_classes(self) -> tuple[Ints, Cells]:
        """Return the cells of the stored classes, one after the other: class by class on the classes' grid."""
        return self.once("classes", self._read_stored_classes)

    def _read_stored_classes(self) -> tuple[Ints, Cells]:
        places, counts, sums = self.pane["classes"].blocks["cells"].filled()
        width = self.spec.class_grid.n_positions
        return places, self._under_policy("class", places % width, counts, sums)

    def _cells_of_any_class(self) -> tuple[Ints, Cells]:
        """Return the cells of all classes together: those at the same place of the grid are one."""
        places, cells = self._stored_classes()
        width = self.spec.class_grid.n_positions
        place = places % width
        filled = np.flatnonzero(np.bincount(place, minlength=width))
        index = np.zeros(width, np.int64)
        index[filled] = np.arange(len(filled))
        return filled, cells.grouped(index[place], len(filled))

    def _class_cells(self, class_index: int) -> tuple[Ints, Cells]:
        slot = self._slot(class_index)
        places, cells = self._stored_classes()
        width = self.spec.class_grid.n_positions
        first, last = np.searchsorted(places, [slot * width, (slot + 1) * width])
        return places[first:last] - slot * width, cells.select(slice(first, last))

    def _slot(self, class_index: int) -> int:
        """Return the place of a class among the stored ones."""
        if class_index not in self.spec.stored_classes:
            listed = "the first 64 classes have separate tables only if the model has no more; list others when you create the model"
            raise NoResultError("class_not_kept", listed)
        return self.spec.stored_classes.index(class_index)


def has_cells(pane: Pane, scope: str) -> bool:
    """Return whether the pane has cells of a scope that its specification allows.

    Examples
    --------
    >>> pane = Pane.fill([[0.7, 0.2, 0.1]], [0])
    >>> has_cells(pane, "top_label"), has_cells(pane, "positive"), has_cells(pane, "class:2")
    (True, False, True)
    """
    kind, _, name = scope.partition(":")
    if kind == "class":
        return int(name) in pane.spec.stored_classes and "classes" in pane.names
    if kind == "all":
        return ("classes" if pane.spec.keeps_all_classes else "all_labels") in pane.names
    return kind in pane.names
