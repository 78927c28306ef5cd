"""Metrics over time: calibration errors with what a calibrated model would show, accuracy with mean confidence, and the volume."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import dropwhile, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, cast

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
from calibrant.figures.numbers import above_interval_note, to_the_minute
from calibrant.metrics import is_error, slug_of, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, PANEL_IN, MAX_PANELS = 7.4, 1.55, 6
RIGHT_IN = 1.45  # legends
MAX_EVENTS, MAX_NAME = 8, 16  # drawn, the latest; characters of a name
ACCURACY, CONFIDENCE = "accuracy", "confidence in the\npredicted class"
# Parts with a smaller share of the usual number of labels are hollow, and do not set the axis.
MIN_SHARE_OF_LABELS = 0.2
CHANCE = "Where the error is above the grey area, chance alone does not explain it."
CHANCE_UNKNOWN = (
    "What chance alone would show is not known for such short times: too few independent units."
)
CONFIDENT = (
    "Where the accuracy is below the confidence in the predicted class, the model is overconfident."
)
FEW_LABELS = "Hollow: few labels, so the value may be far from the truth; it is drawn at the edge if it is beyond it."


def draw_over_time(result: Result) -> Figure:
    """Return the figure of metrics of consecutive parts of a window, one panel per metric, above the volume.

    Parameters
    ----------
    result : as `GET metrics?every=` returns it; `series` with the window, counts and metrics of each part
    """
    rows = since_first_datum([row for row in result.get("series") or [] if row.get("metrics")])
    names = _names(rows)
    has_null = any(row["metrics"].get(name, {}).get("null_q95") for row in rows for name in names)
    grey = "; grey: 95 % of calibrated models are below" if has_null else ""
    lines = [f"parts of {_length(result)}{grey}" if rows else ""]
    size = (WIDTH_IN, 1.5 + PANEL_IN * (len(names) + 1))
    figure = new_figure(result, "Over time", lines, size, left=0.8, right=RIGHT_IN)
    every = figure.subplots(len(names) + 1, 1, sharex=True, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=0.16)
    if not rows:
        every[0].set_axis_off()
        show_reason(every[0], result)
        return figure
    at = [datetime.fromisoformat(row["window"]["from"]) for row in rows]
    few = have_few_labels(rows)
    for axes, name in zip(every, names, strict=False):
        _draw_metric(axes, at, [row["metrics"].get(name) or {} for row in rows], name, few)
    _draw_volume(every[-1], at, rows)
    mark_dates(every[-1], at)
    _mark_events(list(every), at, result.get("events") or [])
    figure.align_ylabels(every)
    return figure


def over_time_caption(result: Result) -> str:
    """Return what the figure shows, without what it does not: a grey area, a line of confidence, hollow points, events."""
    rows = since_first_datum([row for row in result.get("series") or [] if row.get("metrics")])
    few = have_few_labels(rows)
    usual = [row["metrics"] for row, is_few in zip(rows, few, strict=True) if not is_few]
    errors = [each for found in usual for key, each in found.items() if is_error(slug_of(key))]
    start = rows[0]["window"]["from"] if rows else ""
    sentences = [
        CHANCE if any(each.get("null_q95") is not None for each in errors) else CHANCE_UNKNOWN,
        CONFIDENT if any(_confidence(found) is not None for found in usual) else "",
        FEW_LABELS if any(row.get("n_labelled") for row, is_few in zip(rows, few, strict=True) if is_few) else "",
        above_interval_note(errors),
        _dated([each for each in result.get("events") or [] if each["at"] >= start]),
    ]  # fmt: skip
    return " ".join(filter(None, sentences))


def _confidence(found: Row) -> float | None:
    mean: float | None = (found.get(ACCURACY) or {}).get("null_mean")
    return mean


def _dated(events: list[Row]) -> str:
    named = [f"{event_text(each['kind'], each['name'])} ({to_the_minute(each['at'])})" for each in events]  # fmt: skip
    return f"Dotted lines: {', '.join(named)}." if named else ""


def _mark_events(every: Sequence[Axes], at: list[datetime], events: list[Row]) -> None:
    """Draw a line at each event of the axis through all panels, with its name on the side that has room."""
    left, right = every[-1].get_xlim()
    end = at[-1] + (at[-1] - at[0]) / max(len(at) - 1, 1)
    dated = [(datetime.fromisoformat(each["at"]), each) for each in events]
    shown = [each for each in dated if at[0] <= each[0] <= end][-MAX_EVENTS:]
    middle = at[0] + (end - at[0]) / 2
    for place, (when, event) in enumerate(shown):
        for axes in every:
            axes.axvline(cast("Any", when), color=PURPLE, linestyle=":", linewidth=1.2, zorder=3)
        every[0].text(
            cast("Any", when), 1.02 + 0.1 * (place % 2), _event_name(event), color=PURPLE, fontsize=7.5, va="bottom",
            ha="left" if when < middle else "right",
            transform=every[0].get_xaxis_transform(), parse_math=False,
        )  # fmt: skip
    every[-1].set_xlim(left, right)


def _event_name(event: Row) -> str:
    name = event["name"] if len(event["name"]) <= MAX_NAME else event["name"][: MAX_NAME - 1] + "…"
    return event_text(event["kind"], name)


def have_few_labels(rows: Sequence[Row]) -> list[bool]:
    """Return of each part whether it has far fewer labels than the others, such as the first ones of a new day.

    >>> have_few_labels([{"n_labelled": n} for n in (200, 190, 210, 2, 0)])
    [False, False, False, True, True]
    """
    numbers = [row.get("n_labelled") or 0 for row in rows]
    usual = median([n for n in numbers if n] or [0])
    return [n < MIN_SHARE_OF_LABELS * usual for n in numbers]


def since_first_datum(rows: list[Row]) -> list[Row]:
    """Return the parts from the first with a prediction on; all if none has one.

    >>> since_first_datum([{"n_predictions": n} for n in (0, 0, 7, 0)])
    [{'n_predictions': 7}, {'n_predictions': 0}]
    """
    return list(dropwhile(lambda row: not row.get("n_predictions"), rows)) or rows


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


def _draw_metric(
    axes: Axes, at: list[Any], estimates: list[Result], name: str, few: list[bool]
) -> None:
    """Draw one metric; parts with few labels are hollow points at most at the edge of the axis that the others need."""
    style_axes(axes, "", "accuracy" if name == ACCURACY else _short_title(name))
    usual = [{} if is_few else each for each, is_few in zip(estimates, few, strict=True)]
    if name == ACCURACY:
        # A model is right, on average, as often as its mean confidence says if it is calibrated.
        _line(axes, at, _values(usual, "null_mean"), ORANGE, CONFIDENCE, style="--")
    else:
        _draw_limits(axes, at, _values(usual, "null_q95"))
    for day, each in zip(at, usual, strict=True):
        bounds = each.get("interval")
        if bounds and None not in bounds:
            axes.vlines(day, *bounds, color=BLUE, alpha=0.4, linewidth=3)
    _line(axes, at, _values(usual, "value"), BLUE, "observed")
    if name != ACCURACY and is_error(slug_of(name)):
        axes.set_ylim(bottom=0)
    _draw_few(axes, at, _values(estimates, "value"), few)
    _legend_beside(axes)


def _draw_limits(axes: Axes, at: list[Any], limits: list[float]) -> None:
    if not all(each != each for each in limits):
        axes.fill_between(at, 0, limits, color=FAINT, linewidth=0, label="calibrated model")


def _draw_few(axes: Axes, at: list[Any], values: list[float], few: list[bool]) -> None:
    low, high = axes.get_ylim()
    found = [
        (day, min(max(value, low), high))
        for day, value, is_few in zip(at, values, few, strict=True)
        if is_few and value == value
    ]
    if found:
        label = "few labels"
        x, y = zip(*found, strict=True)
        axes.scatter(
            x, y, s=16, facecolor="white", edgecolor=BLUE, zorder=5, label=label, clip_on=False
        )
        axes.set_ylim(low, high)


def _legend_beside(axes: Axes) -> None:
    """Draw the legend right of the axes, where it covers nothing."""
    legend(axes, "upper left", bbox_to_anchor=(1.0, 1.05), borderaxespad=0.3)


def _short_title(name: str) -> str:
    return "ECE" if name == "ece" else title_of(name)


def _values(estimates: Sequence[Result], field: str) -> list[float]:
    return [float("nan") if each.get(field) is None else float(each[field]) for each in estimates]


def _line(
    axes: Axes, at: list[Any], values: list[float], colour: str, label: str, style: Any = "-"
) -> None:
    if all(each != each for each in values):
        return
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
    _legend_beside(axes)
