"""Metrics over each of the consecutive parts of a window."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from calibrant.pane import Pane
from workers.answers import metrics
from workers.windows import Dated, rfc3339

BY_PANE = True
parts = metrics.parts


def answer(panes: list[Dated], config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """One object a part that holds data, oldest first; `every_s` is a whole number of panes.

    Where panes have been merged into days, parts are no shorter than these, and their windows say so.
    """
    every_s = int(params["every_s"])
    params = {name: value for name, value in params.items() if name != "every_s"}
    parts: dict[int, list[Dated]] = {}
    for each in panes:
        parts.setdefault(each.start_s // every_s * every_s, []).append(each)
    points = [_point(at, every_s, parts[at], config, params, seed) for at in sorted(parts)]
    return {"every_s": every_s, "series": points}


def _point(
    begin: int, every_s: int, panes: list[Dated], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    pane = Pane(config.spec())
    for each in panes:
        pane.merge(each.pane)
    begin_s = min(begin, panes[0].start_s)
    end_s = max(begin + every_s, *(each.start_s + each.length_s for each in panes))
    ends = (rfc3339(datetime.fromtimestamp(at, UTC)) for at in (begin_s, end_s))
    return {"window": dict(zip(("from", "to"), ends, strict=True))} | metrics.answer(pane, config, params, seed)

