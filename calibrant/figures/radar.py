"""Comparison of models: each metric on a spoke, divided by the worst model's, so that inside is better."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import (
    FAINT,
    SERIES,
    SLATE,
    legend,
    new_figure,
    short,
    show_reason,
)
from calibrant.metrics import METRICS, slug_of, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_SPOKES = 3
SPOKE_CHARACTERS = 16


def draw_radar(result: Result) -> Figure:
    """Return the figure of the response of `GET comparison`: a radar, or bars if there are fewer than three metrics."""
    raters = f"labels: {result.get('raters', '')}"
    lines = [
        "each metric's distance from its best, divided by the worst model's: 1 is the worst, 0 perfect",
        raters,
    ]
    spokes = [
        name for name, by_model in result["relative"].items() if None not in by_model.values()
    ]
    left_out = [name for name in result["relative"] if name not in spokes]
    if left_out:
        lines.append(f"not every model has a value of: {', '.join(map(title_of, left_out))}")
    figure = new_figure(result | {"model": ""}, "Models compared", lines, (6.6, 7.2), titles=0.38)
    if len(spokes) < MIN_SPOKES:
        _draw_bars(figure, result, spokes)
        return figure
    axes = figure.subplots(subplot_kw={"projection": "polar"})
    angles = np.linspace(0, 2 * np.pi, len(spokes), endpoint=False)
    for model, (colour, style, marker) in zip(result["models"], SERIES, strict=False):
        values = [result["relative"][name][model] for name in spokes]
        around, closed = [*angles, angles[0]], [*values, values[0]]
        axes.plot(
            *(around, closed), color=colour, linestyle=style, marker=marker, markersize=5, linewidth=1.6,
            label=short(model, 28),
        )  # fmt: skip
        axes.fill(around, closed, color=colour, alpha=0.07)
    axes.set_theta_zero_location("N")  # type: ignore[attr-defined]
    axes.set_theta_direction(-1)  # type: ignore[attr-defined]
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["0.25", "0.5", "0.75", "1"], fontsize=7.5, color=SLATE)
    axes.set_xticks(angles, [_spoke(name) for name in spokes], fontsize=8.5)
    axes.tick_params(pad=9)
    for label, x, y in zip(axes.get_xticklabels(), np.sin(angles), np.cos(angles), strict=True):
        label.set(ha=_away(x, "left", "right"), va=_away(y, "bottom", "top"))
    axes.grid(color=FAINT)
    axes.spines["polar"].set_color(FAINT)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=min(3, len(result["models"])),
        frameon=False,
        fontsize=8.5,
    )
    figure.subplots_adjust(left=0.24, bottom=0.15, right=0.76)  # room for the titles
    return figure


def _away(at: float, positive: str, negative: str) -> str:
    """Return the alignment with which a label grows away from the centre."""
    return "center" if abs(at) < 0.2 else positive if at > 0 else negative


def _spoke(name: str) -> str:
    """Return the label of a metric: the distance to its best value if higher is better."""
    title = title_of(name)
    text = f"1 − {title}" if METRICS[slug_of(name)].direction == "higher" else title
    return textwrap.fill(text, SPOKE_CHARACTERS)


def _draw_bars(figure: Figure, result: Result, spokes: list[str]) -> None:
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    if not spokes:
        show_reason(axes, {"reason": "no metric has a value for every model"})
        return
    models = result["models"]
    width = 0.8 / len(models)
    for i, (model, (colour, _, _)) in enumerate(zip(models, SERIES, strict=False)):
        at = np.arange(len(spokes)) + (i - (len(models) - 1) / 2) * width
        axes.bar(
            at,
            [result["relative"][name][model] for name in spokes],
            0.9 * width,
            color=colour,
            label=short(model, 28),
        )
    axes.set_xticks(range(len(spokes)), [_spoke(name) for name in spokes])
    axes.set_ylim(0, 1.25)
    axes.set_ylabel("relative to the worst")
    legend(axes, "upper right")
