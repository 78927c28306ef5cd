"""Decision curve: net benefit of a model over thresholds, next to that of acting on all and on none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    GREY,
    ORANGE,
    data_of,
    labels_of,
    legend,
    new_figure,
    scope_of,
    show_reason,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Acting on all loses without limit towards threshold 1: the axis ends this far below 0, as a share of the highest value.
_BELOW = 0.25
# Height of the legend, two rows, in inches.
LEGEND_IN = 0.42


def draw_decision_curve(result: Result, *, on: Figure | None = None) -> Figure:
    """Return the curve of the response of `GET decision-curve`.

    Parameters
    ----------
    on : an empty figure to use instead of a new one
    """
    lines = [data_of(result), f"one acts on the {scope_of(result)}; {labels_of(result)}"]
    if result.get("prevalence") is not None:
        share = "accuracy" if result.get("scope") == "top_label" else "share with the outcome"
        lines.append(f"{share}: {result['prevalence']:.4g}")
    figure = new_figure(result, "Decision curve", lines, (6.4, 5.6), titles=LEGEND_IN, on=on)
    draw_benefits(figure.subplots(), result)
    return figure


def draw_benefits(axes: Axes, result: Result) -> None:
    """Draw the three curves into axes."""
    style_axes(axes, "threshold probability", "net benefit (true positives per prediction)")
    if result.get("reason"):
        show_reason(axes, result)
        return
    threshold, benefit, of_all = (
        result[name] for name in ("threshold", "net_benefit", "treat_all")
    )
    axes.plot(
        threshold, of_all, color=ORANGE, linestyle="--", linewidth=1.5, label="act on all", zorder=3
    )
    axes.axhline(0.0, color=GREY, linewidth=1.3, label="act on none", zorder=2)
    _band(axes, result)
    axes.plot(threshold, benefit, color=BLUE, linewidth=1.9, label="act on the model", zorder=4)
    highest = max(*benefit, *of_all, *_uppers(result), 1e-3)
    lowest = max(min(*benefit, 0.0), -_BELOW * highest)
    axes.set(xlim=(0.0, threshold[-1]), ylim=(lowest - 0.06 * highest, 1.05 * highest))
    # Above the axes: bands of intervals can fill all of them.
    place = {"bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.3, "ncols": 2}
    legend(axes, "lower left", **place, columnspacing=0.8, handlelength=1.4, handletextpad=0.4)


def _band(axes: Axes, result: Result) -> None:
    """Shade the intervals, where thresholds have some."""
    pairs = [each or (float("nan"), float("nan")) for each in result["interval"]]
    if any(result["interval"]):
        axes.fill_between(
            result["threshold"],
            [low for low, _ in pairs],
            [high for _, high in pairs],
            color=BLUE,
            alpha=0.18,
            linewidth=0,
            label=f"{100 * result['ci']:.4g} % interval of each threshold",
        )


def _uppers(result: Result) -> list[float]:
    return [each[1] for each in result["interval"] if each]
