"""The reliability table of a window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.reliability_table import reliability
from calibrant.core.view import View
from calibrant.raters.label_coverage import PARTS, coverage
from calibrant.report import question_of

_SCOPES = {"top_label": ("top_label",), "positive": ("positive",)}


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms, and the cells of the scope."""
    scope = str(params.get("scope") or "")
    return (
        "counts",
        "histograms",
        *PARTS,
        *_SCOPES.get(scope, ("top_label", "positive", "classes", "all_labels")),
    )


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """The table of the asked bins, with intervals."""
    view = View(pane, question_of(params))
    return reliability(view) | {"label_coverage": coverage(pane, ci=view.question.ci)}
