"""A loss over two temperatures: contours, the diagonal of one temperature, the lowest point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import (
    INK,
    ORANGE,
    SLATE,
    class_named,
    data_of,
    labels_of,
    legend,
    new_figure,
    short,
    show_reason,
    style_axes,
)
from calibrant.figures.losses import LOSSES
from calibrant.figures.numbers import plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TICKS = (0.25, 0.5, 1, 2, 4, 8)
N_LEVELS = 24
SOURCES = {
    "sample": "the stored sample of logits",
    "cells": "the cells; log-probabilities as logits",
    "rows": "the rows",
    "case": "the cells of one case; log-probabilities as logits",
}


def draw_temperature_surface(
    result: Result,
    *,
    objective: str = "nll",
    classes: list[str] | None = None,
) -> Figure:
    """Return the figure of one loss of the response of `GET temperature/surface`."""
    lines = [data_of(result), labels_of(result)] if result.get("raters") else []
    if result.get("source"):
        lines.append(f"from {SOURCES[result['source']]}, n = {result['n_used']:,}")
    if result.get("case"):
        lines.append(f"case {short(str(result['case']), 60)}")
    figure = new_figure(
        result, f"{LOSSES[objective]} over two temperatures", lines, (6.8, 6.6), right=1.3
    )
    axes = figure.subplots()
    names = [f"temperature of {class_named(i, classes)}" for i in (0, 1)]
    style_axes(axes, *names, grid="none")
    if not result.get(objective):
        show_reason(axes, result)
        return figure
    along, up = np.array(result["background"]), np.array(result["foreground"])
    values = np.array([[np.nan if v is None else v for v in row] for row in result[objective]])
    axes.set(xscale="log", yscale="log")
    _draw(axes, along, up, values, LOSSES[objective])
    ends = [along[0], along[-1]]
    axes.plot(ends, ends, color=INK, linestyle=(0, (5, 4)), linewidth=1.2, label="one temperature")
    axes.plot([1], [1], "k+", markersize=9, markeredgewidth=1.6, label="unchanged")
    lowest = (result.get("lowest") or {}).get(objective)
    if lowest:
        text = f"lowest: {plain_number(lowest['value'])} at {lowest['background']:.2f}, {lowest['foreground']:.2f}"
        axes.plot(
            *([lowest["background"]], [lowest["foreground"]]), color=ORANGE, marker="o", markersize=8, linestyle="",
            markeredgecolor="white", markeredgewidth=1.2, label=text, clip_on=False, zorder=5,
        )  # fmt: skip
    shown = [tick for tick in TICKS if along[0] <= tick <= along[-1]]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(_at(shown))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(_at([]))
    axes.set(xlim=ends, ylim=(up[0], up[-1]))
    legend(axes, "upper left")
    return figure


def _draw(axes: Axes, along: Any, up: Any, values: Any, name: str) -> None:
    """Draw colours in equal steps of the rank, since losses increase steeply at low temperatures."""
    levels = np.unique(np.quantile(values[np.isfinite(values)], np.linspace(0, 1, N_LEVELS)))
    if len(levels) < 2:
        return
    from matplotlib.colors import BoundaryNorm

    norm = BoundaryNorm(levels, 256)
    drawn = axes.contourf(along, up, values, levels=levels, cmap="viridis_r", norm=norm)
    axes.contour(along, up, values, levels=levels, colors="white", linewidths=0.4, alpha=0.6)
    place = axes.get_position()
    colour_bar_axes = axes.figure.add_axes((place.x1 + 0.025, place.y0, 0.028, place.height))
    bar = axes.figure.colorbar(
        drawn, cax=colour_bar_axes, ticks=levels[:: max(1, len(levels) // 8)]
    )
    bar.ax.set_yticklabels([plain_number(level) for level in bar.get_ticks()])
    bar.set_label(name, color=SLATE, fontsize=8.5)
    bar.ax.tick_params(labelsize=8)


def _at(places: list[float]) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(places)
