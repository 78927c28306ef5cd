"""Metrics over each of the consecutive parts of a window."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from calibrant.pane import Pane
from workers.answers import metrics
from workers.windows import rfc3339

BY_PANE = True
parts = metrics.parts


def answer(panes: list[tuple[int, Pane]], config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """One object a part that holds data, oldest first; `every_s` is a whole number of panes."""
    every_s = int(params["every_s"])
    params = {name: value for name, value in params.items() if name != "every_s"}
    merged: dict[int, Pane] = {}
    for start, pane in panes:
        begin = start // every_s * every_s
        merged.setdefault(begin, Pane(config.spec())).merge(pane)
    points = [_point(at, every_s, merged[at], config, params, seed) for at in sorted(merged)]
    return {"every_s": every_s, "series": points}


def _point(
    begin: int, every_s: int, pane: Pane, config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    ends = (rfc3339(datetime.fromtimestamp(at, UTC)) for at in (begin, begin + every_s))
    return {"window": dict(zip(("from", "to"), ends, strict=True))} | metrics.answer(pane, config, params, seed)

