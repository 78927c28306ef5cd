"""Reliability diagram: accuracy over confidence with intervals, and the distribution of scores below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant_server.service.figures.base import (
    BLUE,
    bars,
    data_of,
    density,
    diagonal,
    dressed,
    image,
    labels_of,
    legend,
    say_nothing,
    scope_of,
    sheet,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (6.0, 7.0)


def draw_reliability(result: dict[str, Any], media_type: str) -> bytes:
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


def _figure(result: dict[str, Any]) -> Figure:
    figure = sheet(result, "Reliability", (data_of(result), _method(result)), SIZE_IN)
    curve, scores = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    figure.subplots_adjust(hspace=0.08)
    rows = [row for row in result.get("table", []) if row.get("mean_confidence") is not None]
    dressed(curve, "", "accuracy" if result.get("scope") == "top_label" else "observed frequency")
    dressed(scores, scope_of(result), "share")
    _draw_curve(curve, rows, result.get("ci"))
    density(scores, rows)
    if not rows:
        say_nothing(curve, result)
    legend(curve)
    return figure


def _draw_curve(axes: Axes, rows: list[dict[str, Any]], level: float | None) -> None:
    """Draw accuracy over confidence: a point with its interval for each non-empty bin."""
    diagonal(axes)
    confidence = [row["mean_confidence"] for row in rows]
    accuracy = [row["accuracy"] for row in rows]
    axes.plot(confidence, accuracy, color=BLUE, linewidth=1.6, zorder=3)
    sure = [row for row in rows if row.get("interval")]
    bars(axes, [row["mean_confidence"] for row in sure], [row["interval"] for row in sure], level)
    if rows:
        size = [28 if row in sure else 18 for row in rows]
        axes.scatter(
            confidence, accuracy, s=size, color=BLUE, edgecolor="white", zorder=4, label="observed"
        )
    unit_square(axes)


def _method(result: dict[str, Any]) -> str:
    binning = str(result.get("binning", "")).replace("_", "-")
    return f"{labels_of(result)}; {result.get('bins', '')} {binning} bins"
