"""Uncertainty calibration: share of errors over normalised entropy, with the ideal curve of two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    GREEN,
    bars,
    curve_and_scores,
    data_of,
    density,
    diagonal,
    dotted,
    labels_of,
    legend,
    new_figure,
    show_reason,
    style_axes,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_uncertainty(result: Result) -> Figure:
    """Return the diagram of the response of `GET uncertainty`."""
    lines = [data_of(result), f"{labels_of(result)}; {result.get('bins', '')} bins"]
    if result.get("value") is not None:
        text = f"UCE {result['value']:.4f}"
        if result.get("null_mean") is not None:
            text += f"; expected of a calibrated model: {result['null_mean']:.4f}"
        if result.get("distance_to_ideal") is not None:
            text += f"; distance to the ideal curve {result['distance_to_ideal']:.4f}"
        lines.append(text)
    figure = new_figure(result, "Uncertainty", lines, (6.0, 7.0))
    curve, scores = curve_and_scores(figure)
    style_axes(curve, "", "share of errors")
    style_axes(scores, "uncertainty (entropy over log K)", "share")
    # Of more than two classes a calibrated model is off this line: it is where the metric is 0, not an ideal.
    diagonal(curve, "error equals uncertainty: UCE 0")
    ideal = result.get("ideal_curve")
    if ideal:
        curve.plot(
            *(ideal["uncertainty"], ideal["error"]),
            color=GREEN,
            linewidth=1.6,
            linestyle="-.",
            label="ideal for two classes",
        )
    rows = [row for row in result.get("table") or [] if row["weight"]]
    if rows:
        uncertainty = [row["mean_uncertainty"] for row in rows]
        bars(curve, uncertainty, [row["interval"] for row in rows], result.get("ci"))
        dotted(curve, uncertainty, [row["error_rate"] for row in rows], BLUE, "observed")
    else:
        show_reason(curve, result)
    density(scores, rows)
    unit_square(curve)
    legend(curve)
    return figure
