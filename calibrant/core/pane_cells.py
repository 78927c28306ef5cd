"""Whether a pane was filled with the cells of a scope."""

from __future__ import annotations

from calibrant.core.pane import Pane


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
