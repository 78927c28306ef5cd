"""Reliability before and after a promoted map, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calibrant.figures.base import new_figure, show_reason
from calibrant.figures.numbers import to_the_minute
from calibrant.figures.reliability import draw_curve, error_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = {"before": "before the map", "after": "after the map"}
SIZE_IN = (7.6, 4.6)


def draw_map_effect(effect: Mapping[str, Any]) -> Figure:
    """Return the reliability of the labels since a promotion, before and after the map.

    Parameters
    ----------
    effect : as `GET maps/current/effect` returns it
    """
    lines = [f"{effect['n']:,} labelled predictions since {to_the_minute(effect['since'])}"]
    lines += [
        f"{name}: {', '.join(error_of(effect[side]['ece']))}"
        for side, name in SIDES.items()
        if effect[side] is not None
    ]
    title = f"Before and after map version {effect['version']}"
    figure = new_figure({}, title, lines, SIZE_IN, titles=0.3)
    for axes, (side, name) in zip(figure.subplots(1, 2), SIDES.items(), strict=True):
        if effect[side] is None:
            show_reason(axes, dict(effect))
            continue
        draw_curve(axes, effect[side])
        if side == "after":
            axes.set_ylabel("")
        axes.set_title(name, fontsize=9.5)
    return figure
