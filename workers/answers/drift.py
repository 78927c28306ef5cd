"""The current part of a window compared with what came before it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from calibrant.drift.comparison import compare
from calibrant.pane import Pane
from workers.durations import parse_duration
from workers.windows import rfc3339

BY_PANE = True
CURRENT = "P7D"


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, unit-weighted sums, and plain histograms to say that they stay out."""
    return ("counts", "histograms", "units")


def answer(
    panes: list[tuple[int, Pane]], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """The last `current` of the window against the rest of it."""
    length = parse_duration(params.get("current") or CURRENT)
    last = max((start for start, _ in panes), default=0) + config.pane_s
    cut = last - length
    current, reference = Pane(config.spec()), Pane(config.spec())
    for start, pane in panes:
        (current if start >= cut else reference).merge(pane)
    starts = [start for start, _ in panes]
    earlier = [start for start in starts if start < cut]
    told = compare(current, reference, params.get("raters", "mean"), ci=params.get("ci", 0.95))
    told["current"]["window"] = _window([s for s in starts if s >= cut], config.pane_s)
    told["reference"]["window"] = _window(earlier, config.pane_s)
    told["n_excluded"] = _in_histograms(current) + _in_histograms(reference)
    return told


def _window(starts: list[int], pane_s: int) -> dict[str, str] | None:
    """First and last pane of a side as an interval; None where it has none."""
    if not starts:
        return None
    ends = (min(starts), max(starts) + pane_s)
    return dict(
        zip(("from", "to"), (rfc3339(datetime.fromtimestamp(s, UTC)) for s in ends), strict=True)
    )


def _in_histograms(pane: Pane) -> float:
    """Weight that came as plain histograms, which carry no units and stay out of the comparison."""
    held = pane.histograms
    return max((held.weight(key) for key in held.blocks), default=0.0)
