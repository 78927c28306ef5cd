"""The temperature that a window's labels ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.calibrators.recommendation import Weighing
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms (to say that they cannot answer), the profile and the kept sample."""
    return ("counts", "histograms", "temperature", "sample")


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Temperature, standard error, losses before and after, the curve; held-out gain and what it recommends."""
    objective, raters, ci = (
        params.get("objective", "nll"),
        params.get("raters", "pooled"),
        params.get("ci", 0.95),
    )
    found = fit_temperature(pane, objective=objective, raters=raters, ci=ci, rows_if_complete=True)
    view = View(pane, PaneQuery(bins=default_bins(pane.spec), raters=raters, ci=ci))
    weighing = Weighing(view, found["temperature"])
    return found | weighing.held_out_temperature(objective) | weighing.recommended()
