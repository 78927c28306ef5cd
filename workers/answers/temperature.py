"""The temperature that a window's labels ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.pane import Pane
from calibrant.temperature import fit_temperature


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms (to say that they cannot answer) and the profile."""
    return ("counts", "histograms", "temperature")


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Temperature, standard error, losses before and after, and the curve."""
    return fit_temperature(
        pane,
        objective=params.get("objective", "nll"),
        raters=params.get("raters", "pooled"),
        ci=params.get("ci", 0.95),
    )
