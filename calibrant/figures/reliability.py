"""Reliability diagram: accuracy over confidence with intervals, and the distribution of scores below; and one of each class or label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result, Row
from calibrant.core.errors import CalibrationInputError
from calibrant.figures.base import (
    BLUE,
    FAINT,
    WORTH_FEW,
    bars,
    class_named,
    curve_and_scores,
    data_of,
    density,
    diagonal,
    labels_of,
    new_figure,
    runs,
    scope_of,
    short,
    show_reason,
    style_axes,
    unit_square,
)
from calibrant.figures.numbers import interval_text, plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN, BOTTOM_IN = (5.0, 6.0), 1.05
NORMAL_95 = 1.959963984540054
MAX_PANELS, PANEL_IN = 36, 2.7


def draw_reliability(
    result: Result, *, classes: list[str] | None = None, on: Figure | None = None
) -> Figure:
    """Return the diagram of a reliability table; without data an empty one that states so.

    Parameters
    ----------
    result : `table`, scope, raters, bins, n, n_ratings; `error`, the ECE of the same bins, and model and window where known
    classes : names of the classes
    on : an empty figure to use instead of a new one
    """
    result = {**result, "classes": classes or result.get("classes")}
    lines = (data_of(result), _method(result), *error_of(result.get("error")))
    figure = new_figure(result, "Reliability", lines, SIZE_IN, bottom=BOTTOM_IN, on=on)
    curve, scores = curve_and_scores(figure)
    draw_curve(curve, result)
    style_axes(curve, "", frequency_of(result))
    style_axes(scores, scope_of(result), "share")
    density(scores, filled_rows(result))
    handles, labels = curve.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.0)}
    figure.legend(handles, labels, ncols=2, frameon=False, fontsize=8.5, **place)
    return figure


def draw_curve(axes: Axes, result: Result) -> None:
    """Draw accuracy over confidence: a point with its interval for each bin with data."""
    rows = filled_rows(result)
    style_axes(axes, scope_of(result), frequency_of(result))
    diagonal(axes)
    _draw_band(axes, rows)
    sure = [row for row in rows if row.get("interval")]
    middle, bounds = ([row[name] for row in sure] for name in ("mean_confidence", "interval"))
    bars(axes, middle, bounds, result.get("ci"))
    _draw_points(axes, rows, sure)
    unit_square(axes)
    if not rows:
        show_reason(axes, result)


def filled_rows(result: Result) -> list[Row]:
    """Return the bins that hold labelled predictions."""
    return [row for row in result.get("table") or [] if row.get("mean_confidence") is not None]


def frequency_of(result: Result) -> str:
    """Return what is compared with the score."""
    return "accuracy" if result.get("scope") == "top_label" else "observed frequency"


def _draw_points(axes: Axes, rows: list[Row], sure: list[Row]) -> None:
    """Draw the points; a line joins those with enough independent units, the others are hollow."""
    for run in runs(rows):
        curve = [row["mean_confidence"] for row in run], [row["accuracy"] for row in run]
        axes.plot(*curve, color=BLUE, linewidth=1.6, zorder=3)
    joined = [row for run in runs(rows) for row in run]
    few = [row for row in rows if row not in joined]
    for those, fill, edge, label in (
        (joined, BLUE, "white", "observed"),
        (few, "white", BLUE, WORTH_FEW),
    ):
        if those:
            x, y = ([row[name] for row in those] for name in ("mean_confidence", "accuracy"))
            size = [28 if row in sure else 18 for row in those]
            axes.scatter(x, y, s=size, color=fill, edgecolor=edge, zorder=4, label=label)


def band_of(row: Row) -> tuple[float, float]:
    """Return the limits between which 95 % of calibrated models with this bin's independent units are."""
    p = row["mean_confidence"]
    reach = NORMAL_95 * math.sqrt(max(p * (1.0 - p), 0.0) / max(row["n_effective"], 1.0))
    return max(0.0, p - reach), min(1.0, p + reach)


def _draw_band(axes: Axes, rows: list[Row]) -> None:
    """Draw where 95 % of calibrated models would be, bin by bin."""
    known = [row for row in rows if row.get("n_effective")]
    if known:
        low, high = np.transpose([band_of(row) for row in known])
        left, right = (np.array([row[name] for row in known]) for name in ("lower", "upper"))
        label = "calibrated model, 95 % of each bin"
        axes.bar(
            *(left, high - low, right - left, low),
            align="edge",
            color=FAINT,
            zorder=1.2,
            label=label,
        )


def error_of(error: Result | None) -> list[str]:
    """Return the calibration error with its interval, and its null reference; nothing without one."""
    if not error or error.get("value") is None:
        return []
    bounds = error.get("interval")
    between = f" ({interval_text(bounds)})" if bounds and None not in bounds else ""
    lines = [f"ECE {plain_number(error['value'])}{between}"]
    if error.get("null_q95") is not None:
        mean, most = plain_number(error["null_mean"]), plain_number(error["null_q95"])
        lines.append(f"a calibrated model: {mean}, 95 % below {most}")
    return lines


def _method(result: Result) -> str:
    binning = str(result.get("binning", "")).replace("_", "-")
    return f"{labels_of(result)}; {result.get('bins', '')} {binning} bins"


def draw_class_reliability(
    tables: Sequence[Any] | Mapping[str, Any],
    *,
    classes: list[str] | None = None,
    on: Figure | None = None,
) -> Figure:
    """Return one panel for each reliability table.

    Parameters
    ----------
    tables : `ReliabilityTable`, or plain values of one, by label; or in a list of the scopes `class:0`, `class:1`, …. At most 36
    classes : names of the classes
    on : an empty figure to use instead of a new one

    Raises
    ------
    CalibrationInputError
        No table, or more than 36.
    """
    if not 1 <= len(tables) <= MAX_PANELS:
        detail = (
            f"Received {len(tables)} tables; expected 1 to {MAX_PANELS}. Draw some of the classes."
        )
        raise CalibrationInputError.at("/tables", "range", detail)
    named = tables if isinstance(tables, Mapping) else _by_class(tables, classes)
    results = [
        dict(each.to_dict() if hasattr(each, "to_dict") else each) for each in named.values()
    ]
    columns = math.ceil(math.sqrt(len(results)))
    rows = math.ceil(len(results) / columns)
    size = PANEL_IN * columns + 0.9, PANEL_IN * rows + 1.2
    what = "class" if str(results[0]["scope"]).startswith("class:") else "label"
    lines = (labels_of(results[0]), f"observed frequency over the probability of the {what}")
    figure = new_figure({}, f"Reliability of each {what}", lines, size, titles=0.5, on=on)
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"hspace": 0.3}).ravel()
    for axes, name, result in zip(panels, named, results, strict=False):
        draw_curve(axes, result)
        axes.set(xlabel="", ylabel="")
        axes.set_title(short(name, 24), fontsize=9.5, parse_math=False)
    for axes in panels[len(results) :]:
        axes.set_axis_off()
    return figure


def _by_class(tables: Sequence[Any], classes: list[str] | None) -> dict[str, Any]:
    """Return tables by the name of their class."""
    places = [int(each.scope.partition(":")[2] or 0) for each in tables]
    return {class_named(place, classes): each for place, each in zip(places, tables, strict=True)}
