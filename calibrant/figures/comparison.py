"""Comparison of models: a radar of metrics, in which inside is better, and dots with intervals in a panel for each metric."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import (
    FAINT,
    GREY,
    SERIES,
    SLATE,
    legend,
    new_figure,
    short,
    show_reason,
    style_axes,
)
from calibrant.figures.numbers import plain_number
from calibrant.metrics import METRICS, requested, slug_of, title_of
from calibrant.metrics.metric import BETTER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_SPOKES, SPOKE_CHARACTERS = 3, 16
ROW_IN, HEADING_IN, HEADING_CHARACTERS = 0.24, 0.42, 72


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


def draw_dots(result: Result) -> Figure:
    """Return the figure of the response of `GET comparison`: one panel for each metric, one row for each model."""
    names, models = list(result["relative"]), result["models"]
    known = [name for name in names if any(_estimate(result, m, name) for m in models)]
    lines = [
        f"labels: {result.get('raters', '')}; dots: values, bars: intervals, upright ticks: 95 % of calibrated models are below",
        "; ".join(f"{short(m, 24)}: n = {result['metrics'][m]['n_predictions']:,}" for m in models),
    ]
    if left_out := [name for name in names if name not in known]:
        lines.append(f"no model has a value of: {', '.join(map(title_of, left_out))}")
    panel = HEADING_IN + ROW_IN * len(models) + 0.3
    height = 1.6 + panel * max(len(known), 2)
    first = result["metrics"][models[0]]
    heading = {"model": "", "window": first["window"]}
    figure = new_figure(
        heading, "Models compared", lines, (6.6, height), left=1.6, right=0.7, titles=0.25
    )
    every = figure.subplots(max(len(known), 1), 1, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=0.95)
    if not known:
        show_reason(every[0], {"reason": "no metric has a value for any model"})
    for axes, name in zip(every, known, strict=False):
        _draw(axes, name, {model: _estimate(result, model, name) for model in models})
    return figure


def _estimate(result: Result, model: str, name: str) -> Result | None:
    found: Result | None = result["metrics"][model]["metrics"].get(name)
    return found if found and found.get("value") is not None else None


def _heading(name: str) -> str:
    """Return the title of a metric and its direction, on two lines if it is long."""
    title, direction = title_of(name), BETTER[requested([name])[0].metric.direction]
    return "\n".join(textwrap.wrap(f"{title} ({direction})", HEADING_CHARACTERS))


def _draw(axes: Axes, name: str, by_model: dict[str, Result | None]) -> None:
    style_axes(axes, "", "", grid="x")
    # With its place given, it is not compared with every label of a tick.
    axes.set_title(_heading(name), fontsize=9, loc="left", y=1.0, parse_math=False)
    n = len(by_model)
    for i, (estimate, (colour, _, marker)) in enumerate(
        zip(by_model.values(), SERIES, strict=False)
    ):
        place = n - 1 - i
        if estimate is None:
            axes.text(
                0.01,
                place,
                "no value",
                transform=axes.get_yaxis_transform(),
                fontsize=8,
                va="center",
            )
            continue
        bounds = estimate.get("interval")
        if bounds and None not in bounds:
            axes.plot(bounds, [place, place], color=colour, alpha=0.5, linewidth=3, zorder=2)
        if estimate.get("null_q95") is not None:
            tick = [estimate["null_q95"]] * 2
            axes.plot(tick, [place - 0.35, place + 0.35], color=GREY, linewidth=2, zorder=3)
        dot: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "markeredgecolor": "white",
            "zorder": 4,
        }
        axes.plot([estimate["value"]], [place], linestyle="none", markersize=7, **dot)
        value = plain_number(estimate["value"])
        axes.annotate(
            value, (1.015, place), xycoords=axes.get_yaxis_transform(), fontsize=8, va="center"
        )
    axes.set_yticks(range(n), [short(model, 22) for model in reversed(by_model)], parse_math=False)
    axes.set_ylim(-0.6, n - 0.4)
