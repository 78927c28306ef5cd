"""Figures of cases: box plots of their errors and of Dice, and errors against the number of bins; heading lines of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result, Row
from calibrant.figures.base import (
    BLUE,
    INK,
    ORANGE,
    SERIES,
    dotted,
    labels_of,
    legend,
    new_figure,
    short,
    show_reason,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ERRORS = {"ece": "ECE", "ace": "ACE", "mce": "MCE"}
MEASURES = ERRORS | {"dice": "Dice"}
MAX_CLASSES, MAX_DOTS, MAX_NAME = 12, 400, 24
NAME_CHARACTERS_AN_INCH = 14.0


def cases_line(result: Result, of_class: int | None, word: str = "average over") -> str:
    """Return the number of cases and their classes."""
    names = result.get("classes", [])
    if of_class is not None and of_class < len(names):
        return f"{count_line(result)}; class {short(str(names[of_class]), 32)}"
    return f"{count_line(result)}; {word} {len(names)} class{'' if len(names) == 1 else 'es'}"


def count_line(result: Result) -> str:
    """Return the number of cases with tables, and of all cases."""
    n_cases, stored = result.get("n_cases", 0), result.get("n_cases_kept", result.get("n_cases", 0))
    text = f"{stored:,} case{'' if stored == 1 else 's'}"
    return f"{text} of about {n_cases:,}" if result.get("n_cases_estimated") else text


def options_line(result: Result) -> str:
    """Return bins, label policy, background and missing classes."""
    parts = [f"{result.get('bins', '')} {result.get('membership', 'hard')} bins", labels_of(result)]
    parts.append("background counted" if result.get("background") == "in" else "without background")
    missing = {
        "skip_class": "missing classes left out",
        "skip_case": "cases with a missing class left out",
    }
    return "; ".join(parts + [missing[m] for m in [result.get("missing")] if m in missing])


def draw_boxes_at(axes: Axes, boxes: list[Row], positions: list[float], widths: Any) -> None:
    """Draw boxes of the response at places on the axis."""
    axes.bxp(
        [_in_its_words(box) for box in boxes],
        positions=positions,
        widths=widths,
        manage_ticks=False,
        boxprops={"color": BLUE, "linewidth": 1.1},
        whiskerprops={"color": BLUE, "linewidth": 0.9},
        capprops={"color": BLUE, "linewidth": 0.9},
        medianprops={"color": INK, "linewidth": 1.4},
        flierprops={
            "marker": ".",
            "markersize": 4,
            "markerfacecolor": BLUE,
            "markeredgecolor": "none",
            "alpha": 0.45,
        },
    )


def _in_its_words(box: Row) -> Row:
    """Return a box of the response in the terms of matplotlib."""
    return {
        "q1": box["lower_quartile"],
        "med": box["median"],
        "q3": box["upper_quartile"],
        "whislo": box["lower_whisker"],
        "whishi": box["upper_whisker"],
        "fliers": box["outliers"],
    }


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


def draw_sensitivity(result: Result) -> Figure:
    """Return the errors of a response about cases against the number of bins, with a band of one standard deviation over cases."""
    lines = [
        count_line(result),
        options_line(result | {"bins": "5 to 100"}),
        "mean over classes, then over cases; bands: ± sd over cases",
    ]
    figure = new_figure(result, "Errors by number of bins", lines, (6.0, 5.2))
    axes = figure.subplots()
    style_axes(axes, "bins", "error")
    rows = [row for row in result.get("sensitivity") or [] if row["ace"]["value"] is not None]
    if not rows:
        show_reason(axes, result, "no cases")
        return figure
    at = [row["bins"] for row in rows]
    for (name, label), (colour, style, marker) in zip(ERRORS.items(), SERIES, strict=False):
        values, spread = ([row[name][key] for row in rows] for key in ("value", "sd"))
        lower = [max(value - sd, 0.0) for value, sd in zip(values, spread, strict=True)]
        upper = [value + sd for value, sd in zip(values, spread, strict=True)]
        axes.fill_between(at, lower, upper, color=colour, alpha=0.12, linewidth=0)
        dotted(axes, at, values, colour, label, marker, style)
    axes.set_xscale("log")
    axes.set_xticks(at, [str(bins) for bins in at])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    legend(axes, "upper left")
    return figure
