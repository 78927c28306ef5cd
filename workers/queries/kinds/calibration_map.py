"""A calibration map fitted to a window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.calibrators import Options, fit
from calibrant.calibrators.recommendation import recommend
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View

_PARTS = (
    "counts",
    "histograms",
    "replicates",
    "top_label",
    "positive",
    "classes",
    "temperature",
    "sample",
)


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Everything that some map reads; what a model's panes do not keep is not there to be read."""
    return _PARTS


def is_slow(params: dict[str, Any]) -> bool:
    """A matrix of many classes takes seconds."""
    return params.get("method") == "dirichlet"


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Parameters, evidence before and after, held-out gain."""
    view, options = asked_of_map(pane, params)
    return fit(params.get("method", "temperature"), view, options) | recommend(view)


def asked_of_map(pane: Pane, params: dict[str, Any]) -> tuple[View, Options]:
    """The view that a map is fitted to, and what the method reads."""
    klass = params.get("class")
    scope = None if klass is None else f"class:{klass}"
    question = PaneQuery(
        bins=default_bins(pane.spec, scope),
        raters=params.get("raters", "pooled"),
        scope=scope,
        ci=params.get("ci", 0.95),
    )
    options = Options(
        bins=params.get("bins") or default_bins(pane.spec, scope),
        binning=params.get("binning", "equal_width"),
        centred=params.get("centred", False),
        regularisation=params.get("regularisation", 1e-2),
    )
    return View(pane, question), options
