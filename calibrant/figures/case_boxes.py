"""Box plots over cases: one row for each error and for Dice, one box per class and one for the mean.

Every case is a dot next to its box, since few cases give imprecise quartiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    INK,
    ORANGE,
    new_figure,
    short,
    show_reason,
    style_axes,
)
from calibrant.figures.cases import count_line, options_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"ece": "ECE", "ace": "ACE", "mce": "MCE", "dice": "Dice"}
MAX_CLASSES = 12
MAX_DOTS = 400
MAX_NAME = 24
NAME_CHARACTERS_AN_INCH = 14.0


def draw_boxes(result: Result) -> Figure:
    """Return box plots of a response about cases.

    Parameters
    ----------
    result : response of `GET cases`: model, window, classes, bins, n_cases, `cases`

    Without cases an empty diagram that states so.
    """
    measures = [name for name in MEASURES if result.get("cases") and _columns(result, name)]
    names = [*(str(name) for name in result.get("classes", [])[:MAX_CLASSES]), "mean"]
    rows = max(len(measures), 1)
    width = min(max(5.4, 2.0 + 1.05 * len(names)), 12.0)
    written = [short(name, MAX_NAME) for name in names]
    # Names that do not fit horizontally are slanted.
    aslant = len(names) * max(map(len, written)) > (width - 1.0) * NAME_CHARACTERS_AN_INCH
    bottom = 0.58 + (0.047 * max(map(len, written)) if aslant else 0.0)
    size = (width, 0.82 + bottom + 1.75 * rows)
    lines = [count_line(result), options_line(result)]
    if len(result.get("classes", [])) > MAX_CLASSES:
        lines.append(f"the first {MAX_CLASSES} of {len(result['classes'])} classes")
    figure = new_figure(result, "Cases", lines, size, bottom=bottom)
    figure.subplots_adjust(hspace=0.14)
    every = np.atleast_1d(figure.subplots(rows, 1, sharex=True))
    for axes, name in zip(every, measures, strict=False):
        _draw_boxes(axes, _columns(result, name), name)
        axes.yaxis.set_label_coords(-0.55 / width, 0.5)
    if not measures:
        every[0].set_axis_off()
        show_reason(every[0], result, "no cases")
        return figure
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if aslant else {}
    every[-1].set_xticks(range(len(names)), written, fontsize=8.5, parse_math=False, **turned)
    every[-1].set_xlim(-0.6, len(names) - 0.4)
    every[-1].set_xlabel("class")
    return figure


def _draw_boxes(axes: Axes, columns: list[list[float]], name: str) -> None:
    colour = ORANGE if name == "dice" else BLUE
    places = [i for i, values in enumerate(columns) if values]
    style_axes(axes, "", MEASURES[name], grid="y")
    axes.boxplot(
        [columns[i] for i in places],
        positions=places,
        widths=0.5,
        showfliers=False,
        manage_ticks=False,
        boxprops={"color": colour, "linewidth": 1.2},
        whiskerprops={"color": colour, "linewidth": 1.0},
        capprops={"color": colour, "linewidth": 1.0},
        medianprops={"color": INK, "linewidth": 1.6},
    )
    for i in places:
        values = np.sort(columns[i])[:: max(1, len(columns[i]) // MAX_DOTS)]
        # Distributed by rank, so that the same cases give the same figure.
        aside = 0.13 * np.sin(np.arange(len(values)) * 2.399963)
        axes.scatter(i + aside, values, s=9, color=colour, alpha=0.35, linewidth=0, zorder=1)
    if len(columns) > 1:
        axes.axvline(len(columns) - 1.5, color="#D0D0D0", linewidth=0.8)
    highest = max(max(columns[i]) for i in places)
    axes.set_ylim((-0.03, 1.03) if name == "dice" else (-0.04 * highest, 1.08 * highest or 1.0))


def _columns(result: Result, name: str) -> list[list[float]]:
    """Return values of the cases by class, then their means; empty if no case has any."""
    n = min(len(result["classes"]), MAX_CLASSES)
    rows = [row for row in result["cases"] if any(row["counted"])]
    columns = [
        [
            row[name]["by_class"][k]
            for row in rows
            if row["counted"][k] and row[name]["by_class"][k] is not None
        ]
        for k in range(n)
    ]
    means = [row[name]["mean"] for row in rows if row[name]["mean"] is not None]
    return [*columns, means] if means else []
