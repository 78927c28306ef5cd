"""A calibration map fitted to a window, and what it gains there over the map of a baseline or another model."""

from __future__ import annotations

from typing import Any

from calibrant.calibrators import fit
from calibrant.calibrators.baseline_gain import gain_over
from calibrant.core.pane import Pane
from calibrant_server.workers.queries.kinds import calibration_map
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True
parts = calibration_map.parts
_TOLD = ("method", "scope", "class", "parameters", "digest", "n", "before", "after", "reason")


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `calibration_map`, with the other side's map and the gain over it on this window's labels."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    method = asked.get("method", "temperature")
    theirs = fit(method, *calibration_map.asked_of_map(other, asked))
    view, options = calibration_map.asked_of_map(pane, asked)
    told = {name: theirs[name] for name in _TOLD if name in theirs}
    mine = calibration_map.answer(pane, config, asked, seed)
    about = other_side(params, pane, other)
    return (
        mine
        | gain_over(theirs, view, method, options)
        | {"n": mine["n"], "against": about | {"map": told}}
    )
