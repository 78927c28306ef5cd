"""Losses along the temperature: NLL, Brier and ECE, one panel each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    GREY,
    ORANGE,
    data_of,
    labels_of,
    legend,
    new_figure,
    show_reason,
    style_axes,
)
from calibrant.figures.numbers import interval_text, plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
LOSSES = {"nll": "NLL (nats)", "brier": "Brier score", "ece": "ECE"}
SENTENCES = {"nll": "Log loss", "brier": "Brier score", "ece": "Calibration error"}
SIZE_IN = (5.0, 4.2)
# The paper's range; beyond it the losses increase steeply and hide the minimum. Wider if the fitted temperature is outside.
SHOWN = (0.48, 10.4)
TICKS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 0.5, 1, 2, 4, 8, 16, 32)


def draw_losses(result: Result, *, only: str | None = None, on: Figure | None = None) -> Figure:
    """Return the figure of the losses of a fitted temperature along the temperature.

    Parameters
    ----------
    result : as `Temperature.to_dict` and `GET temperature` with `include=curve` return it
    only : one loss, such as "nll"; a panel for each without it
    on : an empty figure to use instead of a new one
    """
    names = list(LOSSES) if only is None else [only]
    title = "Losses along the temperature" if only is None else f"{SENTENCES[only]} and temperature"
    size = (SIZE_IN[0], 1.6 + 1.9 * len(names)) if len(names) > 1 else SIZE_IN
    figure = new_figure(result, title, _lines(result), size, on=on)
    every = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=0.1)
    if _fitted(result) is None:
        show_reason(every[len(names) // 2], result)
        for axes in every:
            axes.set_axis_off()
        return figure
    for axes, name in zip(every, names, strict=True):
        draw_loss(axes, result, name)
        axes.set_xlabel("temperature" if name == names[-1] else "")
    legend(every[0])
    figure.align_ylabels(every)
    return figure


def draw_loss(axes: Axes, result: Result, name: str) -> None:
    """Draw one loss along the temperature."""
    fitted = _fitted(result)
    style_axes(axes, "temperature", LOSSES[name])
    if fitted is None:
        show_reason(axes, result)
        return
    shown = min(SHOWN[0], fitted / 1.05), max(SHOWN[1], fitted * 1.05)
    axes.set(xscale="log", xlim=shown)
    curve = result["curve"]
    if curve.get(name):
        _draw(axes, np.array(curve["temperature"]), curve[name], result, name, shown)
    ticks = [tick for tick in TICKS if shown[0] <= tick <= shown[1]]
    axes.set_xticks(ticks, [f"{tick:.4g}" for tick in ticks])
    axes.minorticks_off()


def _fitted(result: Result) -> float | None:
    """Return the fitted temperature; None if there is none, or no curve to draw."""
    return result.get("temperature") if result.get("curve") else None


def _lines(result: Result) -> list[str]:
    lines = [data_of(result), labels_of(result)] if result.get("raters") else [data_of(result)]
    if result.get("temperature") is None:
        return lines
    text = f"T = {plain_number(result['temperature'])} by {result.get('objective') or 'nll'}"
    bounds = result.get("interval")
    if bounds and None not in bounds:
        text += f", {100 * (result.get('ci') or 0.95):.4g} % interval {interval_text(bounds)}"
    return [*lines, text + (", the end of the range" if result.get("at_bound") else "")]


def _draw(
    axes: Axes,
    at: Any,
    losses: list[float | None],
    result: Result,
    name: str,
    shown: tuple[float, float],
) -> None:
    """Draw points of the grid, a smooth line through them, and the computed losses before and after."""
    values = np.array([np.nan if each is None else each for each in losses])
    known = np.isfinite(values)
    near = known & (at >= shown[0] / 1.5) & (at <= shown[1] * 1.5)
    if near.sum() > 1:
        points = dict(zip(at[known].tolist(), values[known].tolist(), strict=True))
        points |= _computed(result, name)
        along = np.geomspace(max(at[near][0], shown[0]), min(at[near][-1], shown[1]), 300)
        axes.plot(along, drawn_curve(name, points, along), color=BLUE, linewidth=1.6)
    axes.plot(
        at[near],
        values[near],
        color=BLUE,
        marker="o",
        markersize=3,
        linestyle="",
        label="stored points",
    )
    bounds = result.get("interval")
    if bounds and None not in bounds:
        axes.axvspan(*bounds, color=ORANGE, alpha=0.15, linewidth=0, label="interval of the fit")
    axes.axvline(1.0, color=GREY, linestyle=(0, (5, 4)), linewidth=1.0)
    axes.axvline(result["temperature"], color=ORANGE, linewidth=1.0)
    for when, temperature, colour, marker in (
        ("before", 1.0, GREY, "s"),
        ("after", result["temperature"], ORANGE, "D"),
    ):
        loss = (result.get(when) or {}).get(name)
        if loss is not None:
            axes.plot(
                *([temperature], [loss]), color=colour, marker=marker, markersize=7, linestyle="", label=when,
                markeredgecolor="white", zorder=5,
            )  # fmt: skip


def _computed(result: Result, name: str) -> dict[float, float]:
    """Return the loss at the fitted temperature, if it is known."""
    loss = (result.get("after") or {}).get(name)
    return {} if loss is None else {float(result["temperature"]): float(loss)}


def drawn_curve(
    loss: str, points: Mapping[float, float | None], along: Sequence[float] | Floats
) -> Floats:
    """Return the loss at the temperatures `along`, by interpolation in log T.

    NLL and Brier score are smooth in T: a cubic spline through the stored temperatures is within 0.01 % of their range. The
    ECE is not: its line stays between neighbouring points, so that it shows no minimum which was not computed.

    Parameters
    ----------
    loss : "nll", "brier" or "ece"
    points : loss by temperature, at least two of them known
    along : temperatures within those of `points`

    Examples
    --------
    >>> temperatures = [0.5, 0.7, 1.0, 1.4, 2.0]
    >>> points = {t: np.log(t) ** 2 for t in temperatures}
    >>> drawn_curve("nll", points, [1.2]).round(4).tolist(), (np.log(1.2) ** 2).round(4).tolist()
    ([0.0332], 0.0332)
    """
    known = {t: value for t, value in points.items() if value is not None}
    at = np.array(sorted(known))
    values = np.array([known[t] for t in at.tolist()])
    methods = scipy.interpolate
    method = methods.PchipInterpolator if loss == "ece" else methods.CubicSpline
    return np.asarray(method(np.log(at), values)(np.log(along)), np.float64)
