"""Errors of cases against the number of bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.core.documents import Result
from calibrant.figures.base import (
    SERIES,
    dotted,
    legend,
    new_figure,
    show_reason,
    style_axes,
)
from calibrant.figures.cases import count_line, options_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {"ece": "ECE", "ace": "ACE", "mce": "MCE"}


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
    for (name, label), (colour, style, marker) in zip(MEASURES.items(), SERIES, strict=False):
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
