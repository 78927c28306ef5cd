"""Reliability of cases: a box over cases in each bin, the share of the cases in each cell, and the diagram of one case by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result, Row
from calibrant.figures.base import (
    BLUE,
    ORANGE,
    SLATE,
    density,
    diagonal,
    dotted,
    legend,
    new_figure,
    short,
    show_reason,
    style_axes,
    unit_square,
)
from calibrant.figures.cases import cases_line, draw_boxes_at, options_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 9
ACROSS = 3
PANEL_IN = (3.0, 3.7)
GAMMA, BAR_IN = 0.5, 1.15


def draw_reliability_boxes(result: Result) -> Figure:
    """Return the reliability diagram of all counted classes with a box plot over cases in each bin.

    Parameters
    ----------
    result : response of `GET cases`: model, window, classes, bins, n_cases, `reliability`

    Without cases an empty diagram that states so.
    """
    figure = new_figure(
        result, "Reliability by case", (cases_line(result, None, "all"), options_line(result))
    )
    axes = figure.subplots()
    diagonal(axes)
    style_axes(axes, "probability of a class", "observed frequency", grid="y")
    rows = [row for row in result.get("reliability") or [] if row["box"] is not None]
    if rows:
        middles = [(row["lower"] + row["upper"]) / 2 for row in rows]
        widths = [0.55 * (row["upper"] - row["lower"]) for row in rows]
        draw_boxes_at(axes, [row["box"] for row in rows], middles, widths)
        axes.plot(
            [],
            [],
            color=BLUE,
            linewidth=1.1,
            label="cases: quartiles, whiskers at 1.5 of their distance",
        )
        confidence = [row["mean_confidence"] for row in rows]
        dotted(
            axes,
            confidence,
            [row["observed_frequency"] for row in rows],
            ORANGE,
            "all cases together",
        )
    else:
        show_reason(axes, result, "no cases")
    unit_square(axes)
    legend(axes, "upper left")
    return figure


def draw_one_case(result: Result, *, of_class: int | None = None) -> Figure:
    """Return one case's reliability diagram: one panel per class, with its errors and the distribution of probabilities.

    Parameters
    ----------
    result : response of `GET cases` with `case`
    of_class : index in `classes`. Default: the first nine.
    """
    classes = result["case"]["classes"]
    shown = classes[:MAX_PANELS] if of_class is None else [classes[of_class]]
    across = min(len(shown), ACROSS)
    down = -(-len(shown) // across)
    width, height = PANEL_IN if len(shown) > 1 else (5.2, 5.6)
    lines = [f"case {short(str(result['case']['case']), 60)}", options_line(result)]
    if len(shown) < len(classes) and of_class is None:
        lines.append(f"the first {len(shown)} of {len(classes)} classes")
    figure = new_figure(
        result,
        "Reliability of one case",
        lines,
        (1.0 + across * width, 1.6 + down * height),
        titles=0.2,
    )
    panels = figure.add_gridspec(down, across, hspace=0.32, wspace=0.28)
    for i, each in enumerate(shown):
        inner = panels[i // across, i % across].subgridspec(2, 1, height_ratios=[4, 1], hspace=0.08)
        curve = figure.add_subplot(inner[0])
        counts = figure.add_subplot(inner[1], sharex=curve)
        _draw_panel(curve, counts, each, first=i % across == 0, last=i >= len(shown) - across)
    legend(figure.axes[0], "upper left")
    return figure


def _draw_panel(curve: Axes, counts: Axes, of: Row, *, first: bool, last: bool) -> None:
    rows = [row for row in of["table"] if row["mean_confidence"] is not None]
    diagonal(curve)
    style_axes(curve, "", "observed frequency" if first else "")
    style_axes(counts, "probability of the class" if last else "", "")
    curve.tick_params(labelbottom=False)
    if rows:
        low = [min(row["mean_confidence"], row["observed_frequency"]) for row in rows]
        high = [max(row["mean_confidence"], row["observed_frequency"]) for row in rows]
        confidence = [row["mean_confidence"] for row in rows]
        curve.vlines(
            confidence, low, high, color=ORANGE, alpha=0.55, linewidth=3, label="gap", zorder=2
        )
        dotted(curve, confidence, [row["observed_frequency"] for row in rows], BLUE, "observed")
    else:
        show_reason(curve, {"reason": "not in this case"})
    density(counts, rows, log=True)
    counts.set_ylabel("share (log)" if first else "")
    unit_square(curve)
    lines_of_text = [
        f"{name.upper()} {of[name]:.3f}"
        for name in ("ece", "ace", "mce")
        if of.get(name) is not None
    ]
    curve.set_title(short(str(of["class"]), 24), fontsize=9.5, loc="left", parse_math=False)
    curve.text(
        *(0.97, 0.04, "\n".join(lines_of_text)), transform=curve.transAxes, ha="right", va="bottom", fontsize=8, color=SLATE, zorder=6,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
    )  # fmt: skip
    if rows:
        total = sum(row["weight"] for row in rows)
        curve.set_title(f"weight {total:,.0f}", fontsize=8, color=SLATE, loc="right")


def draw_histogram(result: Result, *, of_class: int | None = None) -> Figure:
    """Return the dataset reliability histogram of a response about cases.

    Parameters
    ----------
    result : response of `GET cases`: model, window, classes, bins, n_cases, `histogram`
    of_class : index in `classes`. Default: the average over classes.

    Without cases an empty diagram that states so.
    """
    lines = (cases_line(result, of_class), options_line(result))
    figure = new_figure(result, "Reliability over cases", lines, right=BAR_IN)
    axes = figure.subplots()
    diagonal(axes)
    style_axes(axes, "probability of the class", "observed frequency", grid="none")
    shares, frequency = _shares(result, of_class)
    if shares is None:
        show_reason(axes, result, "no cases")
    else:
        _draw_shares(figure, shares)
        centres = (np.arange(len(shares)) + 0.5) / len(shares)
        known = np.isfinite(frequency)
        dotted(axes, centres[known], frequency[known], ORANGE, "mean of cases")
    unit_square(axes, 0.0)
    legend(axes, "upper left")
    return figure


def _draw_shares(figure: Figure, shares: Any) -> None:
    from matplotlib.colors import PowerNorm

    axes = figure.axes[0]
    columns, rows = shares.shape
    mesh = axes.pcolormesh(
        np.arange(columns + 1) / columns,
        np.arange(rows + 1) / rows,
        np.ma.masked_equal(shares.T, 0.0),
        cmap="Blues",
        norm=PowerNorm(GAMMA, vmin=0.0, vmax=1.0),
        edgecolor="white",
        linewidth=0.4 if columns <= 25 else 0.0,
    )
    place = axes.get_position()
    colour_bar_axes = figure.add_axes((place.x1 + 0.02, place.y0, 0.028, place.height))
    bar = figure.colorbar(mesh, cax=colour_bar_axes, ticks=[0, 0.05, 0.2, 0.4, 0.6, 0.8, 1.0])
    bar.set_label("share of the cases of a column", color=SLATE, fontsize=8.5)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _shares(result: Result, of_class: int | None) -> tuple[Any, Any]:
    """Return the share of the cases by column (bins, frequency_bins), and the mean frequency; None without cases."""
    histogram = result.get("histogram")
    if not histogram or not result.get("cases"):
        return None, None
    counts = np.asarray(histogram["counts"], np.float64)
    if of_class is None:
        return np.asarray(histogram["mean"]), _known(histogram["mean_frequency"])
    total = counts[of_class].sum(axis=1, keepdims=True)
    shares = np.divide(
        counts[of_class], total, out=np.zeros_like(counts[of_class]), where=total > 0
    )
    return shares, _known(histogram["mean_frequency_by_class"][of_class])


def _known(values: list[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values])
