"""Metrics over time: calibration errors with what a calibrated model would show, accuracy with mean confidence, and the volume."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result, Row
from calibrant.core.time_texts import event_text
from calibrant.figures.base import (
    BLUE,
    FAINT,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    legend,
    mark_dates,
    new_figure,
    show_reason,
    style_axes,
)
from calibrant.metrics import is_error, slug_of, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, PANEL_IN, MAX_PANELS = 6.4, 1.55, 6
MAX_EVENTS, MAX_NAME = 8, 16  # drawn, the latest; characters of a name
ACCURACY = "accuracy"


def draw_over_time(result: Result) -> Figure:
    """Return the figure of metrics of consecutive parts of a window, one panel per metric, above the volume.

    Parameters
    ----------
    result : as `GET metrics?every=` returns it; `series` with the window, counts and metrics of each part
    """
    rows = [row for row in result.get("series") or [] if row.get("metrics")]
    names = _names(rows)
    lines = [
        f"parts of {_length(result)}; grey: 95 % of calibrated models are below" if rows else ""
    ]
    size = (WIDTH_IN, 1.5 + PANEL_IN * (len(names) + 1))
    figure = new_figure(result, "Over time", lines, size, left=0.8)
    every = figure.subplots(len(names) + 1, 1, sharex=True, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=0.16)
    if not rows:
        every[0].set_axis_off()
        show_reason(every[0], result)
        return figure
    at = [datetime.fromisoformat(row["window"]["from"]) for row in rows]
    for axes, name in zip(every, names, strict=False):
        _draw_metric(axes, at, [row["metrics"].get(name) or {} for row in rows], name)
    _draw_volume(every[-1], at, rows)
    mark_dates(every[-1], at)
    _mark_events(list(every), at, result.get("events") or [])
    figure.align_ylabels(every)
    return figure


def _mark_events(every: Sequence[Axes], at: list[datetime], events: list[Row]) -> None:
    """Draw a line at each event through all panels, with its number; the legend of the last panel names them."""
    left, right = every[-1].get_xlim()
    shown = [each for each in events if at[0] <= datetime.fromisoformat(each["at"])][-MAX_EVENTS:]
    for place, event in enumerate(shown):
        when: Any = datetime.fromisoformat(event["at"])
        for axes in every:
            axes.axvline(when, color=PURPLE, linestyle=":", linewidth=1.2, zorder=3)
        every[0].text(
            when, 1.02 + 0.1 * (place % 2), _event_name(event), color=PURPLE, fontsize=7.5, ha="left", va="bottom",
            transform=every[0].get_xaxis_transform(), parse_math=False,
        )  # fmt: skip
    every[-1].set_xlim(left, right)


def _event_name(event: Row) -> str:
    name = event["name"] if len(event["name"]) <= MAX_NAME else event["name"][: MAX_NAME - 1] + "…"
    return event_text(event["kind"], name)


def _names(rows: list[Row]) -> list[str]:
    """Return the metrics that some part has, calibration errors first."""
    found = {
        name: None
        for row in rows
        for name, each in row["metrics"].items()
        if each.get("value") is not None
    }
    return sorted(found, key=lambda name: (not is_error(slug_of(name)), name != ACCURACY))[
        :MAX_PANELS
    ]


def _length(result: Result) -> str:
    every_s = int(result.get("every_s") or 0)
    for seconds, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if every_s and every_s % seconds == 0:
            n = every_s // seconds
            return f"one {name}" if n == 1 else f"{n} {name}s"
    return f"{every_s} s"


def _draw_metric(axes: Axes, at: list[Any], estimates: list[Result], name: str) -> None:
    style_axes(axes, "", "accuracy" if name == ACCURACY else _short_title(name))
    if name == ACCURACY:
        # A model is right, on average, as often as its mean confidence says if it is calibrated.
        _line(axes, at, _values(estimates, "null_mean"), ORANGE, "mean confidence", style="--")
    else:
        limits = _values(estimates, "null_q95")
        axes.fill_between(
            at, 0, limits, color=FAINT, linewidth=0, step=None, label="calibrated model"
        )
    for day, each in zip(at, estimates, strict=True):
        bounds = each.get("interval")
        if bounds and None not in bounds:
            axes.vlines(day, *bounds, color=BLUE, alpha=0.4, linewidth=3)
    _line(axes, at, _values(estimates, "value"), BLUE, "observed")
    if name != ACCURACY and is_error(slug_of(name)):
        axes.set_ylim(bottom=0)
    legend(axes)


def _short_title(name: str) -> str:
    return "ECE" if name == "ece" else title_of(name)


def _values(estimates: Sequence[Result], field: str) -> list[float]:
    return [float("nan") if each.get(field) is None else float(each[field]) for each in estimates]


def _line(
    axes: Axes, at: list[Any], values: list[float], colour: str, label: str, style: Any = "-"
) -> None:
    axes.plot(
        at, values, color=colour, linestyle=style, linewidth=1.5, marker="o", markersize=3.2, label=label, zorder=4
    )  # fmt: skip


def _draw_volume(axes: Axes, at: list[Any], rows: list[Row]) -> None:
    """Draw the number of predictions of each part, and how many of them have a label."""
    style_axes(axes, "", "predictions")
    width = min((after - before for before, after in pairwise(at)), default=None)
    for field, colour, label in (
        ("n_predictions", FAINT, "without a label"),
        ("n_labelled", SKY, "labelled"),
    ):
        heights = [row.get(field) or 0 for row in rows]
        options: dict[str, Any] = {"width": 0.8 * width} if width else {}
        axes.bar(
            at,
            heights,
            align="edge",
            color=colour,
            edgecolor=GREY,
            linewidth=0.3,
            label=label,
            **options,
        )
    axes.set_ylim(bottom=0)
    legend(axes)
