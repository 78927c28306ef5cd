"""The receiver operating characteristic of a window, and the area under it with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.estimators.roc import POINTS, roc
from calibrant.metrics import accumulators_for, compute_metrics
from calibrant.report import question_of


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms, replicates and the cells of the scope."""
    return accumulators_for(["auc"])


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """The curve; `area` is the metric `auc` as `GET metrics` tells it."""
    view = View(pane, question_of_roc(pane, params))
    found = roc(view, params.get("points", POINTS))
    return found | {"ci": view.question.ci, "area": compute_metrics(view, ["auc"], seed)["auc"]}


def question_of_roc(pane: Pane, params: dict[str, Any]) -> PaneQuery:
    """What the view is asked. Bins are not asked for, but every question has some, which the grid must give."""
    asked = {name: value for name, value in params.items() if name != "points"}
    return question_of({**asked, "bins": default_bins(pane.spec, params["scope"])})
