"""The confidence histogram of a window, or of one of its cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.view import NotAnswerable, View
from calibrant.segmentation.histogram_state import confidence_of, left

REFUSED = {"bins_not_exact": "/bins", "unknown_case": "/case"}


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms, cells of the classes and of the top label, uncertainty, scores; for a case its table."""
    if params.get("case") is not None:
        return ("counts", "histograms", "cases")
    return ("counts", "histograms", "classes", "all_labels", "top_label", "uncertainty", "scores")


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """The histograms; `label` is None, with a `reason`, where the window cannot give them.

    Raises
    ------
    CalibrationInputError
        Bins that the kept cells cannot give exactly, or a case of which no table is kept.
    """
    case = params.get("case")
    question = left(params["bins"], params.get("raters", "pooled"))
    # A case is kept in cells of its own, whatever the model's grid.
    view = View(pane, replace(question, scope="class:0", own_bins=case is not None))
    classes = config.classes or [str(k) for k in range(pane.spec.n_classes)]
    about = {"classes": classes, "case": case, "reason": None}
    try:
        return about | confidence_of(view, case=case, smoothing=params.get("smoothing", 0))
    except NotAnswerable as refusal:
        if refusal.reason in REFUSED:
            raise CalibrationInputError.at(
                REFUSED[refusal.reason], refusal.reason, refusal.detail
            ) from refusal
        told = {"raters": view.question.raters, "bins": params["bins"], "edges": "left", "n": 0}
        return about | told | {"label": None, "reason": refusal.reason, "detail": refusal.detail}
