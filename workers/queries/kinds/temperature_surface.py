"""The losses of a model of two classes over one temperature for each class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.calibrators.temperature.report import POINTS, surface_answer
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NotAnswerable, View


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms, the kept sample, and the cells of class 1; of a case its table."""
    if params.get("case") is not None:
        return ("counts", "histograms", "cases")
    return ("counts", "histograms", "sample", "positive", "classes")


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """The surface; every loss None, with a `reason`, where there is none.

    Raises
    ------
    CalibrationInputError
        A case of which no table is kept.
    """
    question = PaneQuery(bins=params["bins"], edges="left", raters=params.get("raters", "pooled"))
    view = View(pane, question)
    try:
        return {"reason": None} | surface_answer(
            view, points=params.get("points", POINTS), case=params.get("case")
        )
    except NotAnswerable as refusal:
        if refusal.reason == "unknown_case":
            raise CalibrationInputError.at("/case", refusal.reason, refusal.detail) from refusal
        nothing = dict.fromkeys(("background", "foreground", "nll", "brier", "ece", "lowest"))
        return nothing | {"n": 0, "reason": refusal.reason, "detail": refusal.detail}
