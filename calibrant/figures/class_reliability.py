"""Reliability diagrams of every class against the rest, in one figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibrant.core.errors import CalibrationInputError
from calibrant.figures.base import class_named, labels_of, new_figure
from calibrant.figures.reliability import draw_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PANELS = 36
PANEL_IN = 2.7


def draw_class_reliability(
    tables: Sequence[Any], *, classes: list[str] | None = None, on: Figure | None = None
) -> Figure:
    """Return one panel for each reliability table.

    Parameters
    ----------
    tables : `ReliabilityTable` of the scopes `class:0`, `class:1`, …, at most 36
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
    results = [each.to_dict() for each in tables]
    columns = math.ceil(math.sqrt(len(results)))
    rows = math.ceil(len(results) / columns)
    size = PANEL_IN * columns + 0.9, PANEL_IN * rows + 1.2
    lines = (labels_of(results[0]), "observed frequency over the probability of the class")
    figure = new_figure({}, "Reliability of each class", lines, size, titles=0.5, on=on)
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"hspace": 0.3}).ravel()
    for axes, result in zip(panels, results, strict=False):
        place = int(result["scope"].partition(":")[2] or 0)
        draw_curve(axes, result)
        axes.set(xlabel="", ylabel="")
        axes.set_title(class_named(place, classes), fontsize=9.5, parse_math=False)
    for axes in panels[len(results) :]:
        axes.set_axis_off()
    return figure
