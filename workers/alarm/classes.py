"""The table of one class against the rest, from the cells of a sealed cohort.

Class cells carry no unit weights, so their sums are a unit-weighted table only where every prediction is a unit of
its own and has weight one; elsewhere there is none, and the class is not watched.
"""

from __future__ import annotations

from calibrant.drift.tables import DRIFT_BINS, UnitTable
from calibrant.errors import CalibrationInputError
from calibrant.pane import Pane
from calibrant.policies import POLICIES
from calibrant.question import Question
from calibrant.view import NotAnswerable, View


def class_table(pane: Pane, index: int, raters: str) -> UnitTable | None:
    """Units by bin of the probability of a class, or None where the pane does not carry them."""
    counts = pane.counts
    n = counts["n_labelled"]
    if counts["n_units"] != n or (raters == POLICIES[0] and counts["n_ratings"] != n):
        return None
    try:
        question = Question(bins=DRIFT_BINS, raters=raters, scope=f"class:{index}")
        cells = View(pane, question).table_of(f"class:{index}").cells
    except (NotAnswerable, CalibrationInputError):
        return None
    if (cells.weight != cells.count).any():
        return None
    return UnitTable(cells.weight, cells.confidence, cells.correct, cells.weight, cells.weight)
