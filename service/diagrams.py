"""The reliability diagram, drawn from the table that the JSON answer holds.

Colours are two of Okabe and Ito's, which stay apart for every kind of colour vision, and shape tells what
colour tells. matplotlib is imported at the first diagram: it takes half a second that other requests need
not wait for. One diagram is drawn at a time, since matplotlib's font machinery is shared.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY, SLATE, INK = "#0072B2", "#D55E00", "#8A8A8A", "#444444", "#222222"
SIZE_IN = (6.0, 7.0)
DOTS_PER_INCH = 150
FORMATS = {"image/svg+xml": "svg", "image/png": "png"}
SCOPES = {
    "top_label": "confidence of the top class",
    "positive": "probability of class 1",
    "all": "probabilities of all classes",
}
POLICIES = {
    "pooled": "every rating counted",
    "mean": "mean of raters",
    "majority": "majority of raters",
    "single": "one rating of each prediction",
}
DRAWING = threading.Lock()


def draw_reliability(answer: dict[str, Any], media_type: str) -> bytes:
    """Return the diagram of a reliability answer.

    Parameters
    ----------
    answer : what `GET reliability` answers: model, window, scope, raters, n, n_ratings, `table`
    media_type : "image/svg+xml" or "image/png"

    Returns
    -------
    bytes of the image; without data an empty diagram that says so
    """
    with DRAWING:
        figure = _figure(answer)
        image = io.BytesIO()
        kind = FORMATS[media_type]
        about = {"Title": _heading(answer)} | ({"Date": None} if kind == "svg" else {})
        figure.savefig(image, format=kind, dpi=DOTS_PER_INCH, metadata=about)
    return image.getvalue()


def _figure(answer: dict[str, Any]) -> Figure:
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "calibrant"  # the same table gives the same bytes
    figure = Figure(figsize=SIZE_IN, facecolor="white")
    curve, scores = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    rows = [row for row in answer.get("table", []) if row.get("mean_confidence") is not None]
    _draw_curve(curve, rows, answer.get("ci"))
    _draw_scores(scores, rows)
    if not rows:
        reason = str(answer.get("reason") or "no data").replace("_", " ")
        curve.text(
            *(0.5, 0.25, f"Nothing to draw: {reason}"),
            ha="center",
            color=INK,
            fontsize=12,
            backgroundcolor="white",
        )
    _finish(figure, curve, scores, answer)
    return figure


def _draw_curve(axes: Axes, rows: list[dict[str, Any]], level: float | None) -> None:
    """Accuracy over confidence: a point with its interval for each bin that is not empty."""
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (5, 4)), linewidth=1.2, label="calibrated")
    confidence = [row["mean_confidence"] for row in rows]
    accuracy = [row["accuracy"] for row in rows]
    axes.plot(confidence, accuracy, color=BLUE, linewidth=1.6, zorder=3)
    sure = [row for row in rows if row.get("interval")]
    if sure:
        axes.vlines(
            [row["mean_confidence"] for row in sure],
            [row["interval"][0] for row in sure],
            [row["interval"][1] for row in sure],
            color=BLUE,
            alpha=0.45,
            linewidth=max(1.0, min(4.0, 120 / len(sure))),
            zorder=2,
            label=f"{100 * level:.4g} % interval" if level else "interval",
        )
    if rows:
        size = [28 if row in sure else 18 for row in rows]
        axes.scatter(
            confidence, accuracy, s=size, color=BLUE, edgecolor="white", zorder=4, label="observed"
        )
    axes.set_ylabel("accuracy")
    axes.set_ylim(-0.02, 1.02)


def _draw_scores(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """How the scores lie: share of the weight by bin, as a density where bins differ in width."""
    total = sum(row["weight"] for row in rows)
    widths = [row["upper"] - row["lower"] for row in rows]
    even = not rows or max(widths) - min(widths) < 1e-9
    axes.set_ylabel("share" if even else "density")
    if not total:
        axes.set_ylim(0, 1)
        return
    drawn = [(row, width) for row, width in zip(rows, widths, strict=True) if width > 0]
    axes.bar(
        [row["lower"] for row, _ in drawn],
        [row["weight"] / total / (1 if even else width) for row, width in drawn],
        width=[width for _, width in drawn],
        align="edge",
        color=ORANGE,
        edgecolor="white",
        linewidth=0.8,
    )


def _finish(figure: Figure, curve: Axes, scores: Axes, answer: dict[str, Any]) -> None:
    for axes in (curve, scores):
        axes.set_xlim(-0.02, 1.02)
        axes.grid(color="#E4E4E4", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    scores.set_xlabel(_scope(answer))
    curve.legend(loc="best", framealpha=0.9, edgecolor="none")
    figure.text(
        0.13, 0.962, _heading(answer), fontsize=13, weight="bold", color=INK, parse_math=False
    )
    for line, text in enumerate((_data(answer), _method(answer), _window(answer))):
        figure.text(0.13, 0.937 - 0.02 * line, text, fontsize=8.5, color=SLATE, parse_math=False)
    figure.subplots_adjust(left=0.13, right=0.96, top=0.877, bottom=0.08, hspace=0.08)


def _heading(answer: dict[str, Any]) -> str:
    model = str(answer.get("model", ""))
    return f"Reliability of {model if len(model) <= 32 else model[:31] + '…'}".strip()


def _data(answer: dict[str, Any]) -> str:
    return f"n = {answer.get('n', 0):,} labelled predictions with {answer.get('n_ratings', 0):,} ratings"


def _method(answer: dict[str, Any]) -> str:
    raters = str(answer.get("raters", ""))
    labels = f"{raters} ({POLICIES[raters]})" if raters in POLICIES else raters
    binning = str(answer.get("binning", "")).replace("_", "-")
    return f"labels: {labels}; {answer.get('bins', '')} {binning} bins"


def _window(answer: dict[str, Any]) -> str:
    window = answer.get("window") or {}
    return f"{window.get('from', '')} to {window.get('to', '')}"


def _scope(answer: dict[str, Any]) -> str:
    scope = str(answer.get("scope", ""))
    return SCOPES.get(scope, f"probability of {scope.replace(':', ' ')}")
