"""The current part of a window compared with what came before it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from calibrant.drift.comparison import compare
from calibrant.pane import Pane
from workers.durations import parse_duration
from workers.windows import Dated, rfc3339

BY_PANE = True
CURRENT = "P7D"


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, unit-weighted sums, and plain histograms to say that they stay out."""
    return ("counts", "histograms", "units")


def answer(
    panes: list[Dated], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """The last `current` of the window against the rest of it."""
    length = parse_duration(params.get("current") or CURRENT)
    last = max((each.start_s + each.length_s for each in panes), default=0)
    cut = last - length
    sides = {
        True: [each for each in panes if each.start_s >= cut],
        False: [each for each in panes if each.start_s < cut],
    }
    current, reference = (_merged(sides[side], config) for side in (True, False))
    told = compare(current, reference, params.get("raters", "mean"), ci=params.get("ci", 0.95))
    told["current"]["window"] = _window(sides[True])
    told["reference"]["window"] = _window(sides[False])
    told["n_excluded"] = _in_histograms(current) + _in_histograms(reference)
    return told


def _merged(panes: list[Dated], config: Any) -> Pane:
    merged = Pane(config.spec())
    for each in panes:
        merged.merge(each.pane)
    return merged


def _window(panes: list[Dated]) -> dict[str, str] | None:
    """First and last pane of a side as an interval; None where it has none."""
    if not panes:
        return None
    ends = (min(each.start_s for each in panes), max(each.start_s + each.length_s for each in panes))
    return dict(
        zip(("from", "to"), (rfc3339(datetime.fromtimestamp(s, UTC)) for s in ends), strict=True)
    )


def _in_histograms(pane: Pane) -> float:
    """Weight that came as plain histograms, which carry no units and stay out of the comparison."""
    held = pane.histograms
    return max((held.weight(key) for key in held.blocks), default=0.0)
