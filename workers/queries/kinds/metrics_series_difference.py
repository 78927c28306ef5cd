"""Metrics over each of the consecutive parts of a window, against a baseline or the same part of another model."""

from __future__ import annotations

from typing import Any

from calibrant.core.pane import Pane
from calibrant_server.workers.queries.kinds import metrics_difference, metrics_series
from calibrant_server.workers.store.windows import Dated

BY_PANE = PAIRED = True
parts = metrics_difference.parts


def answer(
    pair: tuple[list[Dated], list[Dated]], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `metrics_series`; each part that this side holds is compared."""
    panes, others = pair
    every_s = int(params["every_s"])
    asked = {name: value for name, value in params.items() if name != "every_s"}
    theirs = metrics_series.in_parts(others, every_s)
    whole = metrics_series.merged(others, config) if "against" in params else None
    points = []
    for begin, some in metrics_series.in_parts(panes, every_s).items():
        other = whole or metrics_series.merged(theirs.get(begin, []), config)
        mine: Pane = metrics_series.merged(some, config)
        told = metrics_difference.answer((mine, other), config, asked, seed)
        points.append({"window": metrics_series.ends_of(begin, every_s, some)} | told)
    return {"every_s": every_s, "series": points}
