"""Confidence histograms: one panel per class and one of the top label, mass of correct above mass of incorrect on a log axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    ORANGE,
    labels_of,
    legend,
    new_figure,
    short,
    show_reason,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CLASSES = 8
ACROSS = 3
PANEL_IN = (3.0, 2.2)


def draw_confidence_histogram(result: Result) -> Figure:
    """Return the figure of the response of `GET confidence-histogram`."""
    lines = [f"{result['bins']} bins; {labels_of(result)}"]
    if result.get("case"):
        lines.append(f"case {short(str(result['case']), 60)}")
    if result.get("smoothing"):
        lines.append(f"smoothed over {result['smoothing']} bins to each side")
    if not result.get("label") or not result.get("mass"):
        figure = new_figure(result, "Confidence histogram", lines, (6.0, 3.6))
        axes = figure.subplots()
        style_axes(axes, "probability", "mass")
        show_reason(axes, result)
        return figure
    panels = [
        (name, table) for name, table in zip(result["classes"], result["label"], strict=True)
    ][:MAX_CLASSES]
    if len(panels) < len(result["classes"]):
        lines.append(f"the first {len(panels)} of {len(result['classes'])} classes")
    if result.get("prediction"):
        panels.append(("top class", result["prediction"]))
    across = 2 if len(panels) == 4 else min(len(panels), ACROSS)
    down = -(-len(panels) // across)
    size = (1.0 + across * PANEL_IN[0], 1.6 + down * PANEL_IN[1])
    figure = new_figure(result, "Confidence histogram", lines, size, titles=0.2)
    every = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    figure.subplots_adjust(hspace=0.32, wspace=0.1)
    masses = np.concatenate([np.ravel(table) for _, table in panels])
    limits = 0.5 * masses[masses > 0].min(), 4.0 * masses.max()
    for i, axes in enumerate(every.flat):
        if i >= len(panels):
            axes.set_axis_off()
            continue
        below = i + across >= len(panels)
        _draw_panel(axes, *panels[i], limits, first=i % across == 0, last=below)
        axes.tick_params(labelbottom=below)
    legend(every[0, 0], "upper center")
    return figure


def _draw_panel(
    axes: Axes,
    name: str,
    table: list[list[float]],
    limits: tuple[float, float],
    *,
    first: bool,
    last: bool,
) -> None:
    wrong, right = np.asarray(table, np.float64)
    n = len(wrong)
    edges = np.arange(n + 1) / n
    is_top = name == "top class"
    for values, colour, word in (
        (wrong, ORANGE, "incorrect" if is_top else "another class"),
        (right, BLUE, "correct" if is_top else "this class"),
    ):
        axes.stairs(
            values,
            edges,
            color=colour,
            linewidth=1.3,
            label=f"reference: {word}" if not is_top else word,
        )
    axes.set_yscale("log", nonpositive="clip", subs=[])
    axes.set_ylim(*limits)
    style_axes(axes, "probability" if last else "", "mass (log)" if first else "")
    axes.set_title(short(str(name), 24), fontsize=9.5, loc="left", parse_math=False)
    axes.set_xlim(0, 1)
    if is_top:
        legend(axes, "upper left")
