"""How steady a calibration error is as data shrink, and what it is under every label policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import METRICS, accumulators_for
from calibrant.report import question_of
from calibrant.stability.replicate_curves import is_binned
from calibrant.stability.report import stability_answer

OWN = ("metric", "subsets", "source")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the metric reads, the raters' disagreement, the scope's cells, which plain histograms are held to, and the
    sample, for what replicates do not carry."""
    scopes = {"top_label", "positive", "classes", "all_labels"}
    return accumulators_for([params["metric"]]) | {"label_distribution", "sample"} | scopes


def is_slow(params: dict[str, Any]) -> bool:
    """Of equal-width bins of replicates curves take a tenth of a second, of anything else seconds."""
    return params.get("source") == "sample" or not is_binned(
        METRICS[params["metric"]], _question(params)
    )


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Curves, total variation and its ratios; `raters` is None, with a `reason`, where there are none."""
    subsets, source = params.get("subsets", "nested"), params.get("source")
    return stability_answer(
        View(pane, _question(params)), params["metric"], subsets=subsets, source=source, seed=seed
    )


def _question(params: dict[str, Any]) -> PaneQuery:
    return question_of({name: value for name, value in params.items() if name not in OWN})
