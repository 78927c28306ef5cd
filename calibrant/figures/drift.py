"""Figure of the drift verdict: the evidence of a change by cohort, and the gaps by bin."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    GREY,
    ORANGE,
    SLATE,
    card,
    legend,
    mark_dates,
    new_figure,
    short,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHED = (0, (5, 4))
# The axis of the evidence ends at this multiple of the level.
CLIPPED_AT = 2.0


def draw_drift(result: Result) -> Figure:
    """Return the figure of the response of `GET drift`; without a detector one that states the reason."""
    lines = [result[name]["sentence"] for name in ("calibration", "change", "scores")]
    if result.get("status") == "alarm":
        lines.append(result["recommendation"]["reason"])
    figure = new_figure({}, _title(result), lines, (7.5, 8.0))
    evidence, gaps = figure.subplots(2, 1)
    figure.subplots_adjust(hspace=0.28)
    is_mapped = (result.get("detector") or {}).get("scores") == "mapped"
    x = "mapped score" if is_mapped and result.get("map_version") else "score"
    style_axes(evidence, "", "−log₁₀ p of a change")
    style_axes(gaps, x, "accuracy less mean score")
    if result.get("detector") and "bins" in result:
        _draw_evidence(evidence, result)
        _draw_gaps(gaps, result)
    else:
        why = str(result.get("detector_reason") or "no cohort is sealed yet")
        lacks_data = result.get("status") == "insufficient_data"
        card(
            evidence,
            "Not enough data for a verdict" if lacks_data else "Not watched",
            f"Missing: {why}.",
        )
        gaps.set_axis_off()
    legend(evidence)
    legend(gaps)
    return figure


def _title(result: Result) -> str:
    model, status = (
        short(str(result.get("model") or ""), 32),
        str(result.get("status", "")).replace("_", " "),
    )
    part = f", {result['slice']}" if result.get("slice") else ""
    title = f" ({result['title']})" if result.get("title") else ""
    return f"Drift of {model}{part}: {status}{title}"


def _draw_evidence(axes: Axes, result: Result) -> None:
    """Draw the evidence of a change by cohort, with its level."""
    rows = result.get("recent") or []
    at: Any = [datetime.fromisoformat(row["from"]) for row in rows]
    if at and (start := result["change"]["start"]):
        begun: Any = max(at[0], datetime.fromisoformat(start))
        axes.axvspan(begun, at[-1], color=ORANGE, alpha=0.12, linewidth=0, label="since the change")
    most = CLIPPED_AT * max((row["threshold_log10"] for row in rows), default=1.0)
    curve = {"color": BLUE, "linewidth": 1.8, "marker": "o", "markersize": 3.5}
    statistic = [row["evidence_log10"] for row in rows]
    axes.plot(at, _until(statistic, most), label="evidence of a change", **curve)  # type: ignore[arg-type]
    _draw_arrows(axes, at, statistic, most)
    threshold = [row["threshold_log10"] for row in rows]
    axes.plot(
        at, threshold, color=GREY, linestyle=_DASHED, linewidth=1.3, label="level of an alarm"
    )
    mark_dates(axes, at)
    axes.set_xlabel("start of the cohort, UTC")


def _until(values: list[float], most: float) -> list[float]:
    """Return values up to the end of the axis; the line leads to the first one beyond it, and not along the end."""
    near = [min(values[max(i - 1, 0) : i + 2]) for i in range(len(values))]
    return [
        min(value, most) if value <= most or least <= most else float("nan")
        for value, least in zip(values, near, strict=True)
    ]


def _draw_arrows(axes: Axes, at: list[Any], values: list[float], most: float) -> None:
    """Draw an arrow at the upper end for each value beyond it."""
    if not values:
        return
    beyond = [day for day, value in zip(at, values, strict=True) if value > most]
    if beyond:
        arrow: dict[str, Any] = {
            "marker": "^",
            "color": ORANGE,
            "linestyle": "none",
            "markersize": 6,
        }
        axes.plot(beyond, [0.97 * most] * len(beyond), label="beyond twice the level", **arrow)
    axes.set_ylim(max(min(values), -most) - 0.05 * most, 1.03 * most)


def _draw_gaps(axes: Axes, result: Result) -> None:
    """Draw accuracy minus mean score with 95 % intervals: before and since the change."""
    rows = [row for row in result.get("bins", []) if row["gap"] is not None]
    allowed = result["calibration"]["allowed"]
    for side, label in ((-allowed, "allowed error"), (allowed, None)):
        axes.axhline(side, color=GREY, linestyle=_DASHED, linewidth=1.1, label=label)
    if rows:
        middle = [row["mean_confidence"] for row in rows]
        low, high = zip(*(row["gap_interval"] for row in rows), strict=True)
        axes.vlines(middle, low, high, color=BLUE, alpha=0.45, linewidth=3)
        dots: dict[str, Any] = {"s": 26, "color": BLUE, "edgecolor": "white", "zorder": 3}
        axes.scatter(
            middle,
            [row["gap"] for row in rows],
            label="before, with 95 % intervals",
            **dots,
        )
    else:
        text = "no labelled prediction in evaluated cohorts"
        axes.text(0.5, 0.5, text, ha="center", va="center", color=SLATE, transform=axes.transAxes)
    since = [row for row in result.get("bins_since_change") or [] if row["gap"] is not None]
    if since:
        diamonds: dict[str, Any] = {
            "s": 34,
            "marker": "D",
            "color": ORANGE,
            "edgecolor": "white",
            "zorder": 4,
        }
        x, y = ([row[name] for row in since] for name in ("mean_confidence", "gap"))
        low, high = zip(*(row["gap_interval"] for row in since), strict=True)
        axes.vlines([each + 0.006 for each in x], low, high, color=ORANGE, alpha=0.5, linewidth=2)
        shifted = [each + 0.006 for each in x]
        axes.scatter(shifted, y, label="since the change, with 95 % intervals", **diamonds)
    lowest = min((row["lower"] for row in (*rows, *since)), default=0.0)
    axes.set_xlim(lowest - 0.02, 1.02)
