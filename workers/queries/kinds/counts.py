"""How much a window holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Reads the counts alone."""
    return ["counts"]


def answer(pane: Any, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Numbers of predictions, ratings and units."""
    return dict(pane.counts)
