"""Calibration map of one probability: the recalibrated value of every score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibrant import calibrators
from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    SERIES,
    class_named,
    data_of,
    diagonal,
    labels_of,
    legend,
    new_figure,
    scope_of,
    show_reason,
    style_axes,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCORES = np.arange(2001) / 2000.0


def draw_calibration_map(
    result: Result,
    *,
    n_classes: int = 2,
    classes: list[str] | None = None,
    on: Figure | None = None,
) -> Figure:
    """Return the curve of a calibration map.

    A map of complete rows of more than two classes has no curve, and the figure states so.

    Parameters
    ----------
    result : as `CalibrationMap.to_dict` and `GET calibration-map` return it
    n_classes : of the model
    classes : their names
    on : an empty figure to use instead of a new one
    """
    title = calibrators.MAPS[result["method"]].title
    labels = f"; {labels_of(result)}" if result.get("raters") else ""
    lines = [f"{title}{labels}", data_of(result), _losses(result)]
    figure = new_figure(result, "Calibration map", lines, (5.0, 5.4), on=on)
    draw_mapped(figure.subplots(), result, n_classes, classes)
    return figure


def draw_mapped(
    axes: Axes, result: Result, n_classes: int = 2, classes: list[str] | None = None
) -> None:
    """Draw the recalibrated probability over the probability."""
    style_axes(axes, _score_name(result, n_classes, classes), "recalibrated")
    diagonal(axes, "unchanged")
    if result.get("parameters") is None:
        show_reason(axes, result)
    elif "classes" in result["parameters"]:
        _draw_classes(axes, result, classes)
    elif result["scope"] == "full" and n_classes > 2:
        show_reason(axes, {"reason": f"a map of rows of {n_classes} classes is no curve"})
    else:
        mapped = calibrators.MAPS[result["method"]].at_scores(result["parameters"], SCORES)
        axes.plot(SCORES, mapped, color=BLUE, linewidth=1.8, label=result["method"], zorder=4)
    unit_square(axes)
    legend(axes, "upper left")


def _draw_classes(axes: Axes, result: Result, classes: list[str] | None) -> None:
    """Draw the map of each class against the rest, before a row is divided by its sum; of many classes without names."""
    method, maps = calibrators.MAPS[result["method"]], result["parameters"]["classes"]
    few = len(maps) <= len(SERIES)
    for k, own in enumerate(maps):
        mapped = SCORES if own is None else method.at_scores(own, SCORES)
        colour, line, _ = SERIES[k] if few else (BLUE, "-", "")
        label = class_named(k, classes) if few else None
        axes.plot(SCORES, mapped, line, color=colour, linewidth=1.2, label=label, zorder=4)


def _score_name(result: Result, n_classes: int, classes: list[str] | None) -> str:
    positive = f"probability of {class_named(1, classes)}"
    names = {"full": positive if n_classes == 2 else "probability", "positive": positive}
    if result.get("class") is not None:
        names["class"] = f"probability of {class_named(result['class'], classes)}"
    return names.get(str(result.get("scope"))) or scope_of(result)


def _losses(result: Result) -> str:
    """Return losses on the labels of the fit, before and after."""
    before, after = result.get("before") or {}, result.get("after") or {}
    names = {"nll": "NLL", "brier": "Brier", "ece": "ECE"}
    text = [
        f"{label} {before[name]:.4f} to {after[name]:.4f}"
        for name, label in names.items()
        if isinstance(before.get(name), float) and isinstance(after.get(name), float)
    ]
    return f"on the labels of the fit, which flatter it: {'; '.join(text)}" if text else ""
