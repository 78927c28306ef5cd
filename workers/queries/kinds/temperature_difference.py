"""The temperature of a window beside that of a baseline or another model."""

from __future__ import annotations

from typing import Any

from calibrant.core.pane import Pane
from calibrant.inference.temperature_differences import temperature_difference
from calibrant_server.workers.queries.kinds import temperature
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True
parts = temperature.parts


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `temperature`, with the other side's, the difference and the ratio."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    mine, theirs = (temperature.answer(each, config, asked, seed) for each in pair)
    told = temperature_difference(mine, theirs, pane, other)
    fitted = told.pop("against")
    del told["shared"]
    return mine | told | {"against": other_side(params, pane, other) | fitted}
