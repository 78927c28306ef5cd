"""Reliability diagram: accuracy over confidence with intervals, and the distribution of scores below."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result, Row
from calibrant.quality_report.numbers import interval_text, plain_number
from calibrant_server.service.figures.base import (
    BLUE,
    FAINT,
    MIN_JOINED,
    bars,
    data_of,
    density,
    diagonal,
    image,
    labels_of,
    new_figure,
    runs,
    scope_of,
    show_reason,
    style_axes,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN, BOTTOM_IN = (6.0, 7.0), 1.25
NORMAL_95 = 1.959963984540054


def draw_reliability(result: Result, media_type: str) -> bytes:
    """Return the diagram of a response about reliability.

    Parameters
    ----------
    result : response of `GET reliability`: model, window, scope, raters, n, n_ratings, `table`
    media_type : "image/svg+xml" or "image/png"

    Returns
    -------
    bytes of the image; without data an empty diagram that states so
    """
    return image(media_type, lambda: _figure(result))


def _figure(result: Result) -> Figure:
    figure = new_figure(
        result,
        "Reliability",
        (data_of(result), _method(result), error_of(result.get("error"))),
        SIZE_IN,
        bottom=BOTTOM_IN,
    )
    curve, scores = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    figure.subplots_adjust(hspace=0.08)
    rows = [row for row in result.get("table", []) if row.get("mean_confidence") is not None]
    style_axes(
        curve, "", "accuracy" if result.get("scope") == "top_label" else "observed frequency"
    )
    style_axes(scores, scope_of(result), "share")
    _draw_curve(curve, rows, result.get("ci"))
    density(scores, rows)
    if not rows:
        show_reason(curve, result)
    handles, labels = curve.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.0)}
    figure.legend(handles, labels, ncols=2, frameon=False, fontsize=8.5, **place)
    return figure


def _draw_curve(axes: Axes, rows: list[Row], level: float | None) -> None:
    """Draw accuracy over confidence: a point with its interval for each non-empty bin."""
    diagonal(axes)
    _draw_band(axes, rows)
    for run in runs(rows):
        curve = [row["mean_confidence"] for row in run], [row["accuracy"] for row in run]
        axes.plot(*curve, color=BLUE, linewidth=1.6, zorder=3)
    sure = [row for row in rows if row.get("interval")]
    bars(axes, [row["mean_confidence"] for row in sure], [row["interval"] for row in sure], level)
    joined = [row for run in runs(rows) for row in run]
    few = [row for row in rows if row not in joined]
    for those, fill, edge, label in (
        (joined, BLUE, "white", "observed"),
        (few, "white", BLUE, f"fewer than {MIN_JOINED:.0f} independent units"),
    ):
        if those:
            x, y = ([row[name] for row in those] for name in ("mean_confidence", "accuracy"))
            size = [28 if row in sure else 18 for row in those]
            axes.scatter(x, y, s=size, color=fill, edgecolor=edge, zorder=4, label=label)
    unit_square(axes)


def _draw_band(axes: Axes, rows: list[Row]) -> None:
    """Draw where 95 % of calibrated models would be, bin by bin, given their independent units."""
    known = [row for row in rows if row.get("n_effective")]
    label: str | None = "calibrated model, 95 % of each bin"
    for row in known:
        p, width = row["mean_confidence"], row["upper"] - row["lower"]
        reach = NORMAL_95 * math.sqrt(max(p * (1.0 - p), 0.0) / max(row["n_effective"], 1.0))
        low, high = max(0.0, p - reach), min(1.0, p + reach)
        axes.bar(
            *(row["lower"], high - low, width, low),
            align="edge",
            color=FAINT,
            zorder=1.2,
            label=label,
        )
        label = None


def error_of(error: Result | None) -> str:
    """Return the calibration error with its interval and its null reference; empty without one."""
    if not error or error.get("value") is None:
        return ""
    text = f"ECE {plain_number(error['value'])}"
    bounds = error.get("interval")
    if bounds and None not in bounds:
        text += f" ({interval_text(bounds)})"
    if error.get("null_q95") is None:
        return text
    mean, most = plain_number(error["null_mean"]), plain_number(error["null_q95"])
    return f"{text}; a calibrated model: {mean}, 95 % below {most}"


def _method(result: Result) -> str:
    binning = str(result.get("binning", "")).replace("_", "-")
    return f"{labels_of(result)}; {result.get('bins', '')} {binning} bins"
