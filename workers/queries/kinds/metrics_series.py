"""Metrics over each of the consecutive parts of a window."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from calibrant.core.pane import Pane
from calibrant_server.workers.queries.kinds import metrics
from calibrant_server.workers.store.windows import Dated, rfc3339

BY_PANE = True
parts = metrics.parts


def answer(panes: list[Dated], config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """One object a part that holds data, oldest first; `every_s` is a whole number of panes.

    Where panes have been merged into days, parts are no shorter than these, and their windows say so.
    """
    every_s = int(params["every_s"])
    asked = {name: value for name, value in params.items() if name != "every_s"}
    points = [
        {"window": ends_of(begin, every_s, some)}
        | metrics.answer(merged(some, config), config, asked, seed)
        for begin, some in in_parts(panes, every_s).items()
    ]
    return {"every_s": every_s, "series": points}


def in_parts(panes: list[Dated], every_s: int) -> dict[int, list[Dated]]:
    """Panes by the beginning of the part that they fall into, oldest first."""
    found: dict[int, list[Dated]] = {}
    for each in sorted(panes, key=lambda each: each.start_s):
        found.setdefault(each.start_s // every_s * every_s, []).append(each)
    return found


def merged(panes: list[Dated], config: Any) -> Pane:
    """The merge of some panes, none included."""
    spec = panes[0].pane.spec if panes else config.spec()
    pane = Pane(spec)
    for each in panes:
        pane.merge(each.pane)
    return pane


def ends_of(begin: int, every_s: int, panes: list[Dated]) -> dict[str, str]:
    """The window of a part: at least `every_s`, and all of its panes."""
    begin_s = min(begin, panes[0].start_s)
    end_s = max(begin + every_s, *(each.start_s + each.length_s for each in panes))
    ends = (rfc3339(datetime.fromtimestamp(at, UTC)) for at in (begin_s, end_s))
    return dict(zip(("from", "to"), ends, strict=True))
