"""Figures of a report, as SVG: reliability, errors with their null reference, losses over temperature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from calibrant.metrics import is_error
from calibrant.plots import (
    BLUE,
    FAINT,
    MIN_JOINED,
    ORANGE,
    frequency_name,
    plot_reliability,
    plot_temperature,
    score_name,
)
from calibrant.quality_report.contents import ReportContents
from calibrant.quality_report.numbers import percent, plain_number
from calibrant.quality_report.svg_axes import SvgAxes
from calibrant.quality_report.verdicts import main_metric, slug_of, title_of
from calibrant.results import ReliabilityTable, Temperature

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#222222"
MAX_NAME = 48
# Inches of labels below the axes, and with a legend.
LABELS_BELOW, LEGEND_BELOW = 0.5, 1.36


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its texts.

    Attributes
    ----------
    size : width and height in inches
    draw : draws it
    title, caption : shown with it; the caption is its text alternative
    below : inches of labels and legend below the axes
    """

    size: tuple[float, float]
    draw: Callable[[Axes], None]
    title: str
    caption: str
    below: float = LABELS_BELOW

    @property
    def svg(self) -> str:
        """Element for the page, without script or link; text stays text."""
        axes = SvgAxes(self.size, self.below, self.title)
        self.draw(cast("Axes", axes))
        return axes.svg()


def figures(contents: ReportContents) -> list[ReportFigure]:
    """Return the figures for which there are data."""
    found = []
    table = contents.reliability
    if table is not None and any(row["weight"] for row in table.get("table", ())):
        found.append(_reliability(contents, table))
    errors = [
        key
        for key, each in contents.estimates.items()
        if is_error(slug_of(key)) and each.get("value") is not None
    ]
    if errors:
        found.append(_errors(contents, errors))
    fitted = contents.temperature
    if fitted is not None and fitted.get("curve") and fitted.get("temperature") is not None:
        found.append(_temperature(fitted))
    return found


def _reliability(contents: ReportContents, table: Mapping[str, Any]) -> ReportFigure:
    key = main_metric(contents.estimates)
    each = contents.estimates[key] if key else {}
    # Where units are too few for the metric, those of a single bin are too.
    is_known = not each or any(each.get(name) is not None for name in ("interval", "null_mean"))

    def draw(ax: Axes) -> None:
        plot_reliability(ReliabilityTable(dict(table)), ax, with_uncertainty=is_known)
        ax.set_title("", loc="left")
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False, fontsize=9
        )

    scope = str(table.get("scope"))
    caption = [
        f"{frequency_name(scope).capitalize()} over {score_name(scope)}. On the dashed line both agree.",
        "Orange columns: share of the data.",
    ]
    if is_known:
        caption.append(
            f"Blue bars: {percent(contents.ci)} interval of each bin. Grey: where 95 % of calibrated models would be, bin by bin."
        )
    else:
        caption.append(
            "No intervals and no range of calibrated models are drawn: there are too few independent units."
        )
    if any(row["weight"] and row["n_effective"] < MIN_JOINED for row in table["table"]):
        caption.append(
            f"Points are joined only between bins worth at least {MIN_JOINED} independent units."
        )
    if key and each.get("value") is not None:
        text = f"{title_of(key)}: {plain_number(each['value'])}"
        if each.get("null_q95") is not None:
            text += f" (a calibrated model: at most {plain_number(each['null_q95'])} in 95 % of samples)"
        caption.append(f"{text}.")
    return ReportFigure((5.4, 5.7), draw, "Reliability", " ".join(caption), LEGEND_BELOW)


def _errors(contents: ReportContents, keys: Sequence[str]) -> ReportFigure:
    def draw(ax: Axes) -> None:
        for place, key in enumerate(reversed(keys)):
            _draw_error(ax, place, contents.estimates[key])
        ax.set_yticks(range(len(keys)), [_shortened(title_of(key)) for key in reversed(keys)])
        ax.set_ylim(-0.6, len(keys) - 0.4)
        left, right = ax.get_xlim()
        left, right = min(0.0, left), max(right, contents.tolerance or 0.0)
        ax.set_xlim(left, right + 0.04 * (right - left))
        ax.set_xlabel("calibration error, a probability")
        ax.grid(axis="x", color=FAINT, linewidth=0.7)
        if contents.tolerance is not None:
            ax.axvline(contents.tolerance, color=INK, linewidth=1.2, linestyle=(0, (2, 2)))
            # Beside the line, where there is more room.
            is_right = contents.tolerance > (left + right) / 2.0
            name = ax.text(
                *(contents.tolerance, len(keys) - 0.45, "tolerance " if is_right else " tolerance"),
                fontsize=8,
                color=INK,
                ha="right" if is_right else "left",
                va="top",
            )
            name.set_in_layout(False)

    shown = [contents.estimates[key] for key in keys]
    caption = "Points: calibration errors."
    if any(each.get("interval") is not None for each in shown):
        caption += f" Lines: their {percent(contents.ci)} intervals, where there are some."
    if any(each.get("null_mean") is not None for each in shown):
        caption += (
            " Orange: from the mean to the 95 % quantile of a perfectly calibrated model with the same predictions. A point "
            "inside or left of the orange range is no evidence of miscalibration."
        )
    if contents.tolerance is not None:
        caption += f" Dotted: the tolerance, {contents.tolerance:g}."
    size = (7.2, 1.0 + 0.34 * max(len(keys), 2))
    return ReportFigure(size, draw, "Calibration errors", caption)


def _shortened(name: str) -> str:
    """Return a name that leaves room for the figure; the table of the page has it in full."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _draw_error(ax: Axes, place: int, each: Mapping[str, Any]) -> None:
    if each.get("null_mean") is not None and each.get("null_q95") is not None:
        ax.plot(
            [each["null_mean"], each["null_q95"]], [place] * 2, color=ORANGE, alpha=0.35, linewidth=8,
            solid_capstyle="butt",
        )  # fmt: skip
    if each.get("interval") is not None:
        ax.plot(each["interval"], [place] * 2, color=BLUE, linewidth=1.8)
    ax.plot(
        [each["value"]], [place], color=BLUE, marker="o", markersize=6, markeredgecolor="white", linestyle="none"
    )  # fmt: skip


def _temperature(fitted: Mapping[str, Any]) -> ReportFigure:
    def draw(ax: Axes) -> None:
        plot_temperature(Temperature(dict(fitted)), ax)

    caption = (
        "Loss over the temperature that divides the logits. The minimum is the fitted temperature; "
        "above 1, the model is overconfident; below 1, it is underconfident."
    )
    if fitted.get("interval"):
        caption += " Shaded: its interval."
    return ReportFigure((5.4, 3.8), draw, "Temperature", caption)
