"""As of the classes' tables, in one."""

from __future__ import annotations

from calibrant.laws.basis import Laws
from calibrant.laws.cells import laws_of_table
from calibrant.laws.classes import laws_of_every_class
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    yield from laws_of_table(pane, "all_labels", pane["all_labels"].blocks["cells"], pane.spec.n_classes)
    yield from laws_of_every_class(pane, "all_labels")
