"""How steady a calibration error is as data shrink, and what it is under every label policy.

The baselines of single raters stand here because they are what several raters are compared with. They are given for
any metric, also where its curve cannot be had from the kept state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.baselines import by_policy
from calibrant.metrics import accumulators_for
from calibrant.pane import Pane
from calibrant.score import question_of
from calibrant.stability import stability
from calibrant.view import NotAnswerable, View

_OWN = ("metric", "subsets")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the metric reads, the raters' disagreement, and the scope's cells, which plain histograms are held to."""
    scopes = {"top_label", "positive", "classes", "all_labels"}
    return accumulators_for([params["metric"]]) | {"label_distribution"} | scopes


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Curves, total variation and its ratios; `raters` is None, with a `reason`, where there are none."""
    slug, subsets = params["metric"], params.get("subsets", "nested")
    asked = {name: value for name, value in params.items() if name not in _OWN}
    view = View(pane, question_of(asked))
    found: dict[str, Any] = {"metric": slug, "subsets": subsets, "reason": None}
    try:
        found |= stability(view, slug, subsets=subsets, seed=seed)
    except NotAnswerable as refusal:
        found |= {"raters": None, "ratio": None, "reason": refusal.reason, "detail": refusal.detail}
    return {
        **found,
        "scope": view.scope,
        "n": pane.counts["n_labelled"],
        "n_ratings": pane.counts["n_ratings"],
        "baselines": by_policy(view, slug, seed),
        "n_majority_ties": pane.counts["n_majority_ties"],
    }
