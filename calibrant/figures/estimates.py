"""Figures of several metrics: values or differences with intervals, one panel per unit.

Calibration errors are probabilities and share an axis from 0. Every other metric has an axis of its own: on a common
one, the largest would hide the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    SLATE,
    data_of,
    labels_of,
    new_figure,
    short,
    show_reason,
    style_axes,
)
from calibrant.figures.over_time import draw_over_time
from calibrant.metrics import METRICS, is_error, slug_of, title_of
from calibrant.metrics.metric import BETTER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, ROW_IN, PANEL_IN, NAMES_IN = 6.4, 0.27, 0.75, 2.6
SLICES_IN, VALUES_IN = 5.0, 1.9
MAX_NAME, MAX_VALUE, MAX_SLICES = 36, 22, 30
ERRORS = "Calibration errors, in probability; smaller is better"
INTERVAL, NULL = "interval", "calibrated model: mean to 95 % limit"
DOT: dict[str, Any] = {
    "color": BLUE, "marker": "o", "markersize": 6, "markeredgecolor": "white", "linestyle": "none", "zorder": 4,
}  # fmt: skip


def draw_estimates(
    result: Result,
    *,
    only_errors: bool = False,
    tolerance: float | None = None,
    on: Figure | None = None,
) -> Figure:
    """Return the figure of values with their intervals, and where calibrated models are: from their mean to their 95 % limit.

    Parameters
    ----------
    result : as `Report.to_dict` and `GET metrics` return it
    only_errors : whether metrics other than calibration errors are left out
    tolerance : largest acceptable calibration error, drawn as a line
    on : an empty figure to use instead of a new one
    """
    known = _known(result, "value")
    names = [name for name in known if is_error(slug_of(name)) or not only_errors]
    figure, panels = _panels_of(result, "Metrics", names, on)
    for axes, rows in panels:
        for place, name in enumerate(reversed(rows)):
            _draw_null(axes, place, known[name])
            _draw_value(axes, place, known[name]["value"], known[name].get("interval"))
        if is_error(slug_of(rows[0])):
            axes.set_xlim(left=min(0.0, axes.dataLim.x0))
            _draw_tolerance(axes, tolerance)
    _name_lines(figure)
    return figure


def draw_slices(result: Result) -> Figure:
    """Return the figure of one metric by slice value: a calibration error if there is one.

    Parameters
    ----------
    result : as `GET metrics?by=` returns it
    """
    slices = list((result.get("slices") or {}).items())
    names = [name for _, each in slices[:1] for name in each["metrics"]]
    name = next((each for each in names if is_error(slug_of(each))), names[0] if names else "")
    known = [
        (value, each["metrics"][name], each.get("n_labelled"))
        for value, each in slices[:MAX_SLICES]
        if each["metrics"][name].get("value") is not None
    ]
    lines = [f"the first {MAX_SLICES} of {len(slices)} values" if len(slices) > MAX_SLICES else ""]
    size = (SLICES_IN, 1.7 + ROW_IN * max(len(known), 3))
    title = f"{title_of(name)} by {result.get('by')}" if name else f"By {result.get('by')}"
    figure = new_figure(result, title, lines, size, left=VALUES_IN, bottom=0.7)
    axes = figure.subplots()
    if not known:
        show_reason(axes, {"reason": "no_data"})
        return figure
    _style(axes, "", [f"{short(value, MAX_VALUE)}, n = {n or 0:,}" for value, _, n in known])
    for place, (_, each, _) in enumerate(reversed(known)):
        _draw_null(axes, place, each)
        _draw_value(axes, place, each["value"], each.get("interval"))
    _name_lines(figure)
    return figure


def draw_metrics(result: Result) -> Figure:
    """Return the figure of metrics: over time, by slice value or of one window."""
    if "series" in result:
        return draw_over_time(result)
    return draw_slices(result) if "slices" in result else draw_estimates(result)


def draw_differences(result: Result, *, on: Figure | None = None) -> Figure:
    """Return the figure of differences with their intervals around 0; what is left of 0 is smaller for the first model.

    Parameters
    ----------
    result : as `Comparison.to_dict` returns it
    on : an empty figure to use instead of a new one
    """
    known = _known(result, "difference")
    figure, panels = _panels_of(result, "First minus second", list(known), on)
    for axes, rows in panels:
        axes.axvline(0.0, color=GREY, linestyle=(0, (5, 4)), linewidth=1.2, zorder=1)
        for place, name in enumerate(reversed(rows)):
            bounds = known[name].get("difference_interval")
            _draw_value(axes, place, known[name]["difference"], bounds)
    _name_lines(figure)
    return figure


def _known(result: Result, field: str) -> dict[str, Result]:
    found = result.get("metrics") or {}
    return {name: each for name, each in found.items() if each.get(field) is not None}


def _panels_of(
    result: Result, title: str, names: list[str], on: Figure | None
) -> tuple[Figure, list[tuple[Axes, list[str]]]]:
    """Return the figure, and each of its panels with the names of its rows."""
    panels = _panels(names)
    heights = [PANEL_IN + ROW_IN * len(rows) for _, rows in panels] or [2.0]
    size = (WIDTH_IN, 1.45 + sum(heights))
    lines = [data_of(result), labels_of(result) if result.get("raters") else ""]
    figure = new_figure(result, title, lines, size, left=NAMES_IN, bottom=0.7, titles=0.3, on=on)
    # Its panels are about as far apart as their headings are high.
    every = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=PANEL_IN * len(heights) / sum(heights) * 1.15)
    if not panels:
        show_reason(every[0], {"reason": "no metric has a value"})
    for axes, (heading, rows) in zip(every, panels, strict=False):
        _style(axes, heading, [title_of(name) for name in rows])
    return figure, [(axes, rows) for axes, (_, rows) in zip(every, panels, strict=False)]


def _panels(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return heading and metrics of each panel, calibration errors first.

    >>> _panels(["accuracy", "ece", "brier", "mce"])[0]
    ('Calibration errors, in probability; smaller is better', ['ece', 'mce'])
    """
    listed = list(names)
    errors = [name for name in listed if is_error(slug_of(name))]
    panels = [(ERRORS, errors)] if errors else []
    return panels + [(_heading(name), [name]) for name in listed if name not in errors]


def _heading(name: str) -> str:
    metric = METRICS[slug_of(name)]
    unit = f"in {metric.unit}; " if metric.unit == "nats" else ""
    return f"{unit}{BETTER[metric.direction]}".rstrip("; ")


def _style(axes: Axes, heading: str, rows: Sequence[str]) -> None:
    style_axes(axes, "", "", grid="x")
    axes.set_title(heading, fontsize=8.5, loc="left", color=SLATE)
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")
    titles = [short(name, MAX_NAME) for name in reversed(rows)]
    axes.set_yticks(range(len(rows)), titles, parse_math=False)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=6)


def _draw_null(axes: Axes, place: int, each: Result) -> None:
    """Draw where calibrated models are; a limit that is not known leaves a mark at their mean."""
    mean = each.get("null_mean")
    if mean is None:
        return
    limit = mean if each.get("null_q95") is None else each["null_q95"]
    shown: dict[str, Any] = {"alpha": 0.4, "solid_capstyle": "butt", "linewidth": 8}
    if limit == mean:
        shown = {"alpha": 0.7, "marker": "|", "markersize": 11, "linestyle": "none"}
    axes.plot([mean, limit], [place] * 2, color=ORANGE, label=NULL, zorder=2, **shown)


def _draw_value(axes: Axes, place: int, value: float, bounds: Sequence[float] | None) -> None:
    if bounds is not None:
        axes.plot(bounds, [place] * 2, color=BLUE, linewidth=1.8, label=INTERVAL, zorder=3)
    axes.plot([value], [place], **DOT)


def _draw_tolerance(axes: Axes, tolerance: float | None) -> None:
    if tolerance is not None:
        axes.axvline(
            tolerance,
            color=INK,
            linewidth=1.2,
            linestyle=(0, (2, 2)),
            label=f"tolerance, {tolerance:g}",
        )
        axes.set_xlim(right=max(axes.get_xlim()[1], 1.04 * tolerance))


def _name_lines(figure: Figure) -> None:
    """Name the lines once, below all panels."""
    first: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            first.setdefault(label, handle)
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.0)}
    if first:
        figure.legend(
            list(first.values()), list(first), ncols=3, frameon=False, fontsize=8.5, **place
        )
