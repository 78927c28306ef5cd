"""What one frozen map gains over another on a window's labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.calibrators.map_comparison import compare
from calibrant.core.pane import Pane


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, the kept sample, and the profile that tells two temperatures apart."""
    return ("counts", "sample", "temperature")


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Whether `candidate` beats `current` (None: the probabilities as they are), with the gain and its interval."""
    return compare(
        params.get("current"),
        params["candidate"],
        pane,
        raters=params.get("raters", "pooled"),
        ci=params.get("ci", 0.95),
    )
