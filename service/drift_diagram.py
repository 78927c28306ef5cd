"""The verdict drawn, from the numbers that the JSON answer holds: the change statistic by cohort, and the gaps by bin."""

import io
import textwrap
from datetime import datetime
from typing import TYPE_CHECKING, Any

from service.diagrams import BLUE, DOTS_PER_INCH, DRAWING, FORMATS, GREY, INK, ORANGE, SLATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (7.5, 8.0)
LEFT = 0.11
_LINE = 104


def draw_drift(answer: dict[str, Any], media_type: str) -> bytes:
    """Return the picture of a verdict.

    Parameters
    ----------
    answer : what `GET drift` answers
    media_type : "image/svg+xml" or "image/png"

    Returns
    -------
    bytes of the image; without a detector one that says why there is none
    """
    with DRAWING:
        figure = _figure(answer)
        image, kind = io.BytesIO(), FORMATS[media_type]
        about = {"Title": _heading(answer)} | ({"Date": None} if kind == "svg" else {})
        figure.savefig(image, format=kind, dpi=DOTS_PER_INCH, metadata=about)
    return image.getvalue()


def _figure(answer: dict[str, Any]) -> "Figure":
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "calibrant"  # the same numbers give the same bytes
    figure = Figure(figsize=SIZE_IN, facecolor="white")
    evidence, gaps = figure.subplots(2, 1, height_ratios=[1, 1])
    if answer.get("detector"):
        _draw_evidence(evidence, answer)
        _draw_gaps(gaps, answer)
    else:
        why = str(answer.get("detector_reason") or "no data")
        evidence.text(0.5, 0.5, "\n".join(textwrap.wrap(why, 70)), ha="center", color=INK, fontsize=11)
    for axes in (evidence, gaps):
        axes.grid(color="#E4E4E4", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    bottom = _write_head(figure, answer)
    figure.subplots_adjust(left=LEFT, right=0.96, top=bottom, bottom=0.07, hspace=0.28)
    return figure


def _draw_evidence(axes: "Axes", answer: dict[str, Any]) -> None:
    """The change statistic cohort by cohort, below its threshold or over it."""
    rows = [row for row in answer.get("recent", []) if row["sr_log10"] is not None]
    at: Any = [datetime.fromisoformat(row["from"]) for row in rows]
    if at and (start := answer.get("start_of_change")):
        begun: Any = max(at[0], datetime.fromisoformat(start))
        axes.axvspan(begun, at[-1], color=ORANGE, alpha=0.12, linewidth=0, label="since the change")
    axes.plot(at, [row["sr_log10"] for row in rows], color=BLUE, linewidth=1.8, marker="o", markersize=3.5,
              label="change statistic")  # fmt: skip
    axes.plot(at, [row["threshold_log10"] for row in rows], color=GREY, linestyle=(0, (5, 4)), linewidth=1.3,
              label="threshold of the alarm")  # fmt: skip
    if alarmed := answer.get("alarmed_at"):
        day: Any = datetime.fromisoformat(alarmed["from"])
        if at and day >= at[0]:
            axes.axvline(day, color=ORANGE, linewidth=1.6, label="went off")
    axes.set_ylabel("change statistic, log₁₀")
    axes.legend(loc="best", framealpha=0.9, edgecolor="none", fontsize=8.5)
    axes.tick_params(axis="x", labelsize=8)
    for label in axes.get_xticklabels():
        label.set_rotation(15)


def _draw_gaps(axes: "Axes", answer: dict[str, Any]) -> None:
    """What came less what was predicted, by bin: since the baseline with its confidence sequence, and since the change."""
    rows = [row for row in answer.get("bins", []) if row["gap"] is not None]
    band = answer["tolerance"]
    edges = [k / len(band["lower"]) for k in range(len(band["lower"]) + 1)]
    for side in ("lower", "upper"):
        axes.stairs(band[side], edges, color=GREY, linestyle=(0, (5, 4)), linewidth=1.1, baseline=None,
                    label="tolerance" if side == "lower" else None)  # fmt: skip
    if rows:
        middle = [row["mean_confidence"] for row in rows]
        low, high = zip(*(row["gap_sequence"] for row in rows), strict=True)
        axes.vlines(middle, low, high, color=BLUE, alpha=0.45, linewidth=3)
        axes.scatter(middle, [row["gap"] for row in rows], s=26, color=BLUE, edgecolor="white", zorder=3,
                     label="since the baseline, with what cannot be excluded")  # fmt: skip
    since = [row for row in answer.get("bins_since_change") or [] if row["gap"] is not None]
    if since:
        axes.scatter([row["mean_confidence"] for row in since], [row["gap"] for row in since], s=34, marker="D",
                     color=ORANGE, edgecolor="white", zorder=4, label="since the change")  # fmt: skip
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("mapped score" if answer.get("scores") == "mapped" and answer.get("map_version") else "score")
    axes.set_ylabel("accuracy less mean score")
    axes.legend(loc="best", framealpha=0.9, edgecolor="none", fontsize=8.5)


def _write_head(figure: "Figure", answer: dict[str, Any]) -> float:
    """Write heading and sentences; returns where the drawing may begin."""
    figure.text(LEFT, 0.965, _heading(answer), fontsize=13, weight="bold", color=INK, parse_math=False)
    told = [answer.get("summary") or answer.get("reason") or ""]
    if answer.get("status") in ("alarm", "acknowledged"):
        told.append(answer["recommended_action"]["text"])
    lines = [line for text in told for line in textwrap.wrap(text, _LINE)]
    for number, line in enumerate(lines):
        figure.text(LEFT, 0.942 - 0.019 * number, line, fontsize=8.5, color=SLATE, parse_math=False)
    return 0.93 - 0.019 * len(lines)


def _heading(answer: dict[str, Any]) -> str:
    model, status = str(answer.get("model", "")), str(answer.get("status", "")).replace("_", " ")
    title = f" ({answer['title']})" if answer.get("title") else ""
    part = f", {answer['slice']}" if answer.get("slice") else ""
    shown = model if len(model) <= 32 else model[:31] + "…"
    return f"Drift of {shown}{part}: {status}{title}"
