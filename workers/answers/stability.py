"""How steady a calibration error is as data shrink, and what it is under every label policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.metrics import accumulators_for
from calibrant.pane import Pane
from calibrant.score import question_of
from calibrant.stability.answer import stability_answer
from calibrant.view import View

OWN = ("metric", "subsets")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the metric reads, the raters' disagreement, and the scope's cells, which plain histograms are held to."""
    scopes = {"top_label", "positive", "classes", "all_labels"}
    return accumulators_for([params["metric"]]) | {"label_distribution"} | scopes


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Curves, total variation and its ratios; `raters` is None, with a `reason`, where there are none."""
    asked = {name: value for name, value in params.items() if name not in OWN}
    view = View(pane, question_of(asked))
    return stability_answer(view, params["metric"], subsets=params.get("subsets", "nested"), seed=seed)
