"""Calibration map of one probability: the recalibrated value of every score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibrant import calibrators
from calibrant.core.documents import Result
from calibrant_server.service.figures.base import (
    BLUE,
    class_named,
    data_of,
    diagonal,
    image,
    labels_of,
    legend,
    new_figure,
    scope_of,
    show_reason,
    style_axes,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = np.arange(2001) / 2000.0


def draw_map(
    result: Result, media_type: str, *, n_classes: int, classes: list[str] | None = None
) -> bytes:
    """Return the curve of the response of `GET calibration-map`.

    A map of complete rows of more than two classes has no curve, and the figure states so.
    """
    return image(media_type, lambda: _figure(result, n_classes, classes))


def _figure(result: Result, n_classes: int, classes: list[str] | None) -> Figure:
    method = calibrators.MAPS[result["method"]]
    lines = [f"{method.title}; {labels_of(result)}", data_of(result), _losses(result)]
    figure = new_figure(result, "Calibration map", lines, (6.0, 6.4))
    axes = figure.subplots()
    positive = f"probability of {class_named(1, classes)}"
    every_class = positive if n_classes == 2 else "probability"
    of = {"full": every_class, "positive": positive}
    if result.get("class") is not None:
        of["class"] = f"probability of {class_named(result['class'], classes)}"
    style_axes(axes, of.get(result["scope"]) or scope_of(result), "recalibrated")
    diagonal(axes, "unchanged")
    if result.get("parameters") is None:
        show_reason(axes, result)
    elif result["scope"] == "full" and n_classes > 2:
        show_reason(axes, {"reason": f"a map of rows of {n_classes} classes is no curve"})
    else:
        mapped = method.at_scores(result["parameters"], SCORES)
        axes.plot(SCORES, mapped, color=BLUE, linewidth=1.8, label=result["method"], zorder=4)
    unit_square(axes)
    legend(axes, "upper left")
    return figure


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
