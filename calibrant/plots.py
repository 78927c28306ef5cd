"""Plots of results, with matplotlib, which the extra `plot` brings and which is imported at the first plot.

Colours are Okabe and Ito's, which stay apart for every kind of colour vision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.temperature.drawn_curve import drawn_curve
from calibrant.core.extras import pip_install
from calibrant.metrics.estimate import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from calibrant.results import CalibrationMap, ReliabilityTable, Temperature

BLUE, ORANGE, GREY, FAINT = "#0072B2", "#D55E00", "#8A8A8A", "#E4E4E4"
# Bins with fewer independent units are drawn as points that no line joins.
MIN_JOINED = 5
NORMAL_95 = 1.959963984540054
HIGHEST = 0.3
SCORES = {
    "top_label": "confidence of the top class",
    "positive": "probability of class 1",
    "all": "probabilities of all classes",
}


def axes_of(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes to draw into.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                f"Plots need matplotlib, which is not installed. Install the extra: {pip_install('plot')}"
            ) from error
        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set_axisbelow(True)
    ax.grid(color=FAINT, linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def score_name(scope: str) -> str:
    """Return what the score of a scope is, in words."""
    return SCORES.get(scope, f"probability of {scope.replace(':', ' ')}")


def frequency_name(scope: str) -> str:
    """Return what is compared with the score of a scope, in words."""
    return "accuracy" if scope == "top_label" else "observed frequency"


def plot_reliability(
    table: ReliabilityTable, ax: Axes | None, with_uncertainty: bool = True
) -> Axes:
    """Draw accuracy over confidence over the distribution of the scores.

    Parameters
    ----------
    with_uncertainty : whether the intervals of the bins and the range of calibrated models are drawn
    """
    ax = axes_of(ax, (5.2, 5.2))
    values = table.to_dict()
    filled = table.bin_weight > 0
    if filled.any():
        _draw_shares(ax, table)
        x, y, bounds = (
            table.bin_confidence[filled],
            table.bin_accuracy[filled],
            table.bin_interval[filled],
        )
        ax.plot(
            [0, 1],
            [0, 1],
            color=GREY,
            linestyle=(0, (5, 4)),
            linewidth=1.2,
            label="calibrated",
            zorder=2,
        )
        if with_uncertainty:
            _draw_band(ax, table, filled)
            ax.vlines(
                x,
                *bounds.T,
                color=BLUE,
                alpha=0.45,
                linewidth=3,
                label=f"{100 * values['ci']:g} % interval",
                zorder=3,
            )
        joined = np.where(table.column("n_effective")[filled] >= MIN_JOINED, y, np.nan)
        ax.plot(x, joined, color=BLUE, linewidth=1.5, zorder=4)
        ax.plot(
            x,
            y,
            color=BLUE,
            linestyle="none",
            marker="o",
            markersize=5,
            markeredgecolor="white",
            label="observed",
            zorder=5,
        )
        ax.legend(loc="upper left", framealpha=0.9, edgecolor="none", fontsize=9)
    else:
        _nothing(ax, values)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_aspect("equal")
    scope = str(values["scope"])
    ax.set_xlabel(score_name(scope))
    ax.set_ylabel(frequency_name(scope))
    ax.set_title(_title(table), fontsize=10, loc="left")
    return ax


def _draw_band(ax: Axes, table: ReliabilityTable, filled: NDArray[np.bool_]) -> None:
    """Draw where 95 % of calibrated models would be, bin by bin, given the independent units of the bin."""
    p, units = table.bin_confidence[filled], np.maximum(table.column("n_effective")[filled], 1.0)
    reach = NORMAL_95 * np.sqrt(np.clip(p * (1.0 - p), 0.0, None) / units)
    low, high = np.clip(p - reach, 0.0, 1.0), np.clip(p + reach, 0.0, 1.0)
    lower, width = table.lower[filled], (table.upper - table.lower)[filled]
    ax.bar(
        lower, high - low, width, low, align="edge", color=FAINT, zorder=0.9, label="calibrated model, 95 % of each bin"
    )  # fmt: skip


def _draw_shares(ax: Axes, table: ReliabilityTable) -> None:
    """Draw the share of the weight in each bin, behind the curve; of bins of unequal width their density, without scale."""
    height, label = table.bin_weight / table.bin_weight.sum(), "share of the data"
    width = table.upper - table.lower
    if np.ptp(width) > 1e-9:
        density = np.divide(height, width, out=np.zeros_like(height), where=width > 0)
        height, label = HIGHEST * density / density.max(), "density of the data"
    ax.bar(
        table.lower, height, width=width, align="edge", color=ORANGE, alpha=0.25, edgecolor="white", linewidth=0.8,
        label=label, zorder=1,
    )  # fmt: skip


def _title(table: ReliabilityTable) -> str:
    values = table.to_dict()
    binning = str(values["binning"]).replace("_", "-")
    n = values["n"] if values["n"] is not None else values["n_ratings"]
    error = "" if table.ece is None else f"ECE {number(table.ece)}, "
    return f"{error}n = {n:,}, {values['bins']} {binning} bins, raters {values['raters']}"


def plot_temperature(temperature: Temperature, ax: Axes | None) -> Axes:
    """Draw the loss that was minimised over the temperature."""
    ax = axes_of(ax, (5.2, 3.8))
    values = temperature.to_dict()
    curve, loss = values.get("curve"), str(values.get("objective", "nll"))
    if curve:
        x, y = _smooth(curve, loss, temperature.value, (values.get("after") or {}).get(loss))
        ax.plot(x, y, color=BLUE, linewidth=1.6)
        if loss == "ece":
            _mark_points(ax, curve)
        ax.set_xscale("log")
        _around_the_minimum(ax, x, y, temperature.value)
    else:
        _nothing(ax, values)
    if temperature.value is not None:
        ax.axvline(
            temperature.value, color=ORANGE, linewidth=1.4, label=f"T = {temperature.value:.3f}"
        )
        if values.get("interval"):
            level = f"{100 * values['ci']:g} % interval" if values.get("ci") else "interval"
            ax.axvspan(*values["interval"], color=ORANGE, alpha=0.15, label=level)
        ax.legend(framealpha=0.9, edgecolor="none", fontsize=9)
    ax.set_xlabel("temperature")
    ax.set_ylabel({"nll": "negative log-likelihood", "brier": "Brier score", "ece": "ECE"}[loss])
    return ax


def _mark_points(ax: Axes, curve: Mapping[str, Any]) -> None:
    """Mark where the ECE was computed: it is not smooth, so that the line between is a guide only."""
    ax.plot(
        curve["temperature"], curve["ece"], color=BLUE, marker="o", markersize=3, linestyle="none", label="computed"
    )  # fmt: skip


def _smooth(
    curve: Mapping[str, Any], loss: str, value: float | None, least: float | None
) -> tuple[Any, Any]:
    """Return the curve through its stored points and the fitted one, closely enough to look smooth."""
    points = dict(zip(curve["temperature"], curve[loss], strict=True))
    if value is not None and least is not None:
        points[value] = least
    fine = np.geomspace(min(points), max(points), 400)
    return fine, drawn_curve(loss, points, fine)


def _around_the_minimum(ax: Axes, x: Any, y: Any, value: float | None) -> None:
    """Show the part of the curve in which temperatures differ: a factor of 5 around the minimum."""
    middle = value or 1.0
    near = (x >= middle / 5) & (x <= middle * 5)
    ax.set_xlim(middle / 5, middle * 5)
    low, high = y[near].min(), y[near].max()
    ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    marks = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])
    ticks = marks[(marks >= middle / 5) & (marks <= middle * 5)].tolist()
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def plot_map(fitted: CalibrationMap, ax: Axes | None) -> Axes:
    """Draw the recalibrated probability over the probability."""
    ax = axes_of(ax, (4.6, 4.6))
    values = fitted.to_dict()
    if values.get("parameters") is None:
        _nothing(ax, values)
    else:
        x = np.linspace(0.0, 1.0, 501)
        ax.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (5, 4)), linewidth=1.2, label="unchanged")
        ax.plot(
            x,
            _mapped(fitted, values, x),
            color=BLUE,
            linewidth=1.6,
            label=str(values["method"]).replace("_", " "),
        )
        ax.legend(loc="upper left", framealpha=0.9, edgecolor="none", fontsize=9)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_aspect("equal")
    scope = str(values.get("scope"))
    names = {"class": f"probability of class {values.get('class')}"}
    ax.set_xlabel(names.get(scope, SCORES.get(scope, "probability of class 1")))
    ax.set_ylabel("recalibrated")
    return ax


def _mapped(fitted: CalibrationMap, values: Mapping[str, Any], x: Any) -> Any:
    """Return the recalibrated values of one probability."""
    from calibrant.calibrators.registry import map_methods

    method = map_methods()[str(values["method"])]
    if values["scope"] != "full":
        return method.at_scores(values["parameters"], x)
    try:
        return fitted(np.column_stack([1.0 - x, x]))[:, 1]
    except (ValueError, IndexError) as error:
        raise ValueError(
            "a map of more than two classes has no curve of one probability"
        ) from error


def _nothing(ax: Axes, values: Mapping[str, Any]) -> None:
    """Say that there is nothing to draw, and why."""
    reason = str(values.get("reason") or "no data").replace("_", " ")
    ax.text(
        0.5, 0.5, f"Nothing to draw: {reason}", ha="center", va="center", transform=ax.transAxes
    )
