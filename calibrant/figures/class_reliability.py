"""Reliability diagrams of every class against the rest, or of every label of independent ones, in one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calibrant.core.errors import CalibrationInputError
from calibrant.figures.base import class_named, labels_of, new_figure, short
from calibrant.figures.reliability import draw_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PANELS = 36
PANEL_IN = 2.7


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
