"""Losses along the temperature: NLL, Brier and ECE, one panel each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.calibrators.temperature.drawn_curve import drawn_curve
from calibrant.core.documents import Result
from calibrant.quality_report.numbers import interval_text, plain_number
from calibrant_server.service.figures.base import (
    BLUE,
    GREY,
    ORANGE,
    data_of,
    image,
    labels_of,
    legend,
    new_figure,
    show_reason,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSSES = {"nll": "NLL (nats)", "brier": "Brier score", "ece": "ECE"}
# The paper's range; beyond it the losses increase steeply and hide the minimum. Wider if the fitted temperature is outside.
SHOWN = (0.48, 10.4)
TICKS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 0.5, 1, 2, 4, 8, 16, 32)


def draw_losses(result: Result, media_type: str) -> bytes:
    """Return the figure of the curve of the response of `GET temperature`."""
    return image(media_type, lambda: _figure(result))


def _figure(result: Result) -> Figure:
    lines = [data_of(result), labels_of(result)]
    fitted = result.get("temperature")
    if fitted is not None:
        text = f"T = {plain_number(fitted)} by {result.get('objective', 'nll')}"
        bounds = result.get("interval")
        if bounds and None not in bounds:
            text += f", {100 * result.get('ci', 0.95):.4g} % interval {interval_text(bounds)}"
        lines.append(text + (", the end of the range" if result.get("at_bound") else ""))
    shown = (
        SHOWN if fitted is None else (min(SHOWN[0], fitted / 1.05), max(SHOWN[1], fitted * 1.05))
    )
    figure = new_figure(result, "Losses along the temperature", lines, (6.0, 7.2))
    every = figure.subplots(3, 1, sharex=True)
    figure.subplots_adjust(hspace=0.1)
    curve = result.get("curve") or {}
    for axes, name in zip(every, LOSSES, strict=True):
        style_axes(axes, "", LOSSES[name])
        if fitted is not None and curve.get(name):
            _draw(axes, np.array(curve["temperature"]), curve[name], result, name, shown)
    if fitted is None or not curve:
        show_reason(every[1], result)
        every[0].set_axis_off()
        every[2].set_axis_off()
    every[-1].set_xlabel("temperature")
    every[0].set(xscale="log", xlim=shown)
    ticks = [tick for tick in TICKS if shown[0] <= tick <= shown[1]]
    for axes in every:
        axes.set_xticks(ticks, [f"{tick:.4g}" for tick in ticks])
        axes.minorticks_off()
    legend(every[0])
    figure.align_ylabels(every)
    return figure


def _draw(
    axes: Axes,
    at: Any,
    losses: list[float | None],
    result: Result,
    name: str,
    shown: tuple[float, float],
) -> None:
    """Draw points of the grid, a smooth line through them, and the computed losses before and after."""
    values = np.array([np.nan if each is None else each for each in losses])
    known = np.isfinite(values)
    near = known & (at >= shown[0] / 1.5) & (at <= shown[1] * 1.5)
    if near.sum() > 1:
        points = dict(zip(at[known].tolist(), values[known].tolist(), strict=True))
        points |= _computed(result, name)
        along = np.geomspace(max(at[near][0], shown[0]), min(at[near][-1], shown[1]), 300)
        axes.plot(along, drawn_curve(name, points, along), color=BLUE, linewidth=1.6)
    axes.plot(
        at[near],
        values[near],
        color=BLUE,
        marker="o",
        markersize=3,
        linestyle="",
        label="stored points",
    )
    axes.axvline(1.0, color=GREY, linestyle=(0, (5, 4)), linewidth=1.0)
    axes.axvline(result["temperature"], color=ORANGE, linewidth=1.0)
    for when, temperature, colour, marker in (
        ("before", 1.0, GREY, "s"),
        ("after", result["temperature"], ORANGE, "D"),
    ):
        loss = (result.get(when) or {}).get(name)
        if loss is not None:
            axes.plot(
                *([temperature], [loss]), color=colour, marker=marker, markersize=7, linestyle="", label=when,
                markeredgecolor="white", zorder=5,
            )  # fmt: skip


def _computed(result: Result, name: str) -> dict[float, float]:
    """Return the loss at the fitted temperature, if it is known."""
    loss = (result.get("after") or {}).get(name)
    return {} if loss is None else {float(result["temperature"]): float(loss)}
