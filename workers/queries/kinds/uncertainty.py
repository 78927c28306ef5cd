"""How errors follow the entropy of the predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import accumulators_for
from calibrant.report import question_of
from calibrant.report_uncertainty import uncertainty


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the metric `uce` reads."""
    return accumulators_for(["uce"])


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """The uncertainty calibration error with its table.

    Raises
    ------
    CalibrationInputError
        Bins that the 240 cells of uncertainty cannot give exactly.
    """
    view = View(pane, question_of_uncertainty(params))
    found = uncertainty(view, seed)
    if found.get("reason") == "bins_not_exact":
        raise CalibrationInputError.at("/bins", "bins_not_exact", found["detail"])
    return found


def question_of_uncertainty(params: dict[str, Any]) -> PaneQuery:
    """What the view is asked; bins are of the table's own cells."""
    return replace(question_of(params), own_bins=True)
