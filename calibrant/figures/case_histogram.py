"""Figure of the dataset reliability histogram: per bin of confidence, shares of the cases by observed frequency, and their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.documents import Result
from calibrant.figures.base import (
    ORANGE,
    SLATE,
    diagonal,
    dotted,
    legend,
    new_figure,
    show_reason,
    style_axes,
    unit_square,
)
from calibrant.figures.cases import cases_line, options_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMA = 0.5
BAR_IN = 1.15


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
