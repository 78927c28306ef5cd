"""Figure that compares models: each metric as dots with intervals, and a tick at the 95 % quantile of calibrated models."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result
from calibrant.figures.base import (
    GREY,
    SERIES,
    new_figure,
    short,
    show_reason,
    style_axes,
)
from calibrant.figures.numbers import plain_number
from calibrant.metrics import requested, title_of
from calibrant.metrics.metric import BETTER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_IN, HEADING_IN = 0.24, 0.42
HEADING_CHARACTERS = 72


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
