"""Receiver operating characteristic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.core.documents import Result
from calibrant.figures.base import (
    BLUE,
    data_of,
    diagonal,
    labels_of,
    legend,
    new_figure,
    scope_of,
    show_reason,
    style_axes,
    unit_square,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_roc(result: Result) -> Figure:
    """Return the curve of the response of `GET roc`."""
    hit = "a correct prediction" if result.get("scope") == "top_label" else "the class"
    score = f"score: {scope_of(result)}; positive: {hit}"
    lines = [data_of(result), f"{score}; {labels_of(result)}"]
    area = result.get("area") or {}
    if result.get("auc") is not None:
        text = f"area {result['auc']:.4f}"
        if area.get("interval"):
            text += f", {100 * result.get('ci', 0.95):.4g} % interval {area['interval'][0]:.4f} to {area['interval'][1]:.4f}"
        lines.append(text)
    figure = new_figure(result, "ROC", lines, (6.0, 6.4))
    axes = figure.subplots()
    style_axes(axes, "false positive rate", f"true positive rate ({hit})")
    diagonal(axes, "by chance")
    if result.get("auc") is None:
        show_reason(axes, result)
    else:
        false, true = result["false_positive_rate"], result["true_positive_rate"]
        axes.fill_between(false, true, color=BLUE, alpha=0.1, linewidth=0)
        axes.plot(false, true, color=BLUE, linewidth=1.8, label="observed", zorder=4)
    unit_square(axes)
    legend(axes, "lower right")
    return figure
