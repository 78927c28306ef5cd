"""Any set of metrics over a window, against a baseline or another model."""

from __future__ import annotations

from typing import Any

from calibrant.difference import differences
from calibrant.errors import CalibrationInputError
from calibrant.metrics import DEFAULT_METRICS
from calibrant.pane import Pane
from calibrant.score import question_of
from calibrant.view import View
from workers.answers import metrics

PAIRED = True
parts = metrics.parts


def answer(pair: Any, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """As `metrics`, with the other side's value, the difference and its interval in each."""
    params = {name: value for name, value in params.items() if not name.startswith("against")}
    pane, other = pair
    refuse_other_classes(pane, other)
    told = metrics.answer(pane, config, params, seed)
    question = question_of(params)
    slugs = params.get("metrics") or DEFAULT_METRICS
    told["metrics"] = differences(View(pane, question), View(other, question), slugs, seed)
    return told | {"against": other.counts}


def refuse_other_classes(pane: Pane, other: Pane) -> None:
    """Raise where two models' panes are of another task or other classes."""
    if (pane.spec.task, pane.spec.n_classes) != (other.spec.task, other.spec.n_classes):
        detail = "models of another task or other classes cannot be compared"
        raise CalibrationInputError.at("/against_model", "not_comparable", detail)
