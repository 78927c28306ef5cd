"""Common parts of figures: sheet and heading, colours, axes, the diagonal, texts of empty figures.

Colours are Okabe and Ito's, distinguishable under every kind of colour vision; line or marker styles repeat the
distinction. matplotlib is imported at the first figure: the import takes 0.5 s.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result, Row
from calibrant.core.extras import pip_install
from calibrant.figures.numbers import to_the_minute

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)
GREY, SLATE, INK, FAINT = "#8A8A8A", "#444444", "#222222", "#E4E4E4"
SERIES = (
    *((BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D")),
    *((YELLOW, "-", "v"), (SKY, "--", "P")),
)
# Size of the text below the heading.
CHARACTERS_AN_INCH = 16.5
HEADING_CHARACTERS_AN_INCH = 8.4
# Where the heading begins, or left of it with the axes.
HEADING_IN = 0.72
POLICIES = {
    "pooled": "every rating counted",
    "mean": "mean of raters",
    "majority": "majority of raters",
    "single": "one rating of each prediction",
}
# What a client sends to fill a figure, by the reason why it is empty.
MISSING = {
    "no_data": "No labelled prediction is in this window. Post labels, or choose a longer window.",
    "no_cases": "Send the cases of predictions.",
    "no_named_raters": "Send the raters of labels.",
    "not_in_histogram": "Histograms were posted. Post predictions, or panes filled at the edge.",
    "one_rating": "Send the labels of several raters.",
}
# Bins worth fewer independent units are drawn as points that no line joins.
MIN_JOINED = 5.0
WORTH_FEW = f"worth fewer than {MIN_JOINED:.0f} independent units"
# Above this share in one bin, the others would not be visible on a linear axis.
MAX_SHARE_OF_ONE_BIN = 0.75
MAX_DATES = 6
SCOPES = {
    "top_label": "confidence of the top class",
    "positive": "probability of class 1",
    "all": "probabilities of all classes",
}


def new_figure(
    result: Result,
    title: str,
    lines: Iterable[str],
    size: tuple[float, float] = (6.4, 6.2),
    *,
    left: float = 0.72,
    right: float = 0.25,
    bottom: float = 0.58,
    titles: float = 0.0,
    on: Figure | None = None,
) -> Figure:
    """Return a figure with its heading; `subplots` of it fill the rest.

    Parameters
    ----------
    result : response whose model and window the heading names
    title : subject of the figure
    lines : text below it, wrapped if too long; the window comes last
    size : width and height in inches; left, right and bottom margins too, and `titles` for those of panels
    on : an empty figure to use instead of a new one, such as one that pyplot shows

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    width, height = size
    start = min(left, HEADING_IN)
    most = int((width - start - 0.1) * HEADING_CHARACTERS_AN_INCH)
    room = int((width - start - 0.1) * CHARACTERS_AN_INCH)
    model = short(str(result.get("model") or ""), room - 3)
    head = f"{title} of {model}" if model else title
    if len(head) > most:
        head, lines = title, (f"of {model}", *lines)
    figure = on if on is not None else empty_figure()
    figure.set(size_inches=size, facecolor="white", label=head)
    text = [
        part for line in (*lines, window_of(result)) if line for part in textwrap.wrap(line, room)
    ]
    figure.text(
        *(start / width, 1 - 0.27 / height, head),
        fontsize=12,
        weight="bold",
        color=INK,
        va="center",
        parse_math=False,
    )
    for i, line in enumerate(text):
        figure.text(
            *(start / width, 1 - (0.49 + 0.155 * i) / height, line),
            fontsize=8,
            color=SLATE,
            va="center",
            parse_math=False,
        )
    top = 0.55 + 0.155 * len(text) + titles
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)
    return figure


def empty_figure(*, shown: bool = False) -> Figure:
    """Return an empty figure; one that pyplot shows if `shown`.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    try:
        if shown:
            import matplotlib.pyplot as plt

            return plt.figure()
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"Figures need matplotlib, which is not installed. Install the extra: {pip_install('plot')}"
        ) from error
    return Figure()


def plotted(
    draw: Callable[..., Figure],
    draw_axes: Callable[[Axes, Result], None],
    result: Result,
    axes: Axes | None,
) -> Axes:
    """Draw a result into axes, or as a figure that pyplot shows; return the first axes.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    if axes is None:
        return draw(result, on=empty_figure(shown=True)).axes[0]
    draw_axes(axes, result)
    return axes


def style_axes(axes: Axes, x: str, y: str, *, grid: str = "both") -> None:
    """Label axes and draw their grid in the background; `grid` is both, x, y or none."""
    axes.set_xlabel(x, parse_math=False)
    axes.set_ylabel(y, parse_math=False)
    if grid != "none":
        axes.grid(axis=grid, color=FAINT, linewidth=0.7)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5)


def curve_and_scores(figure: Figure) -> tuple[Axes, Axes]:
    """Return the axes of a curve, and those of the distribution of its scores below it."""
    curve, scores = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    figure.subplots_adjust(hspace=0.08)
    return curve, scores


def runs(rows: list[Row]) -> list[list[Row]]:
    """Return runs of neighbouring bins that a line may join: each has enough independent units, or their number is not known."""
    found: list[list[Row]] = [[]]
    for row in rows:
        if row.get("n_effective", MIN_JOINED) >= MIN_JOINED:
            found[-1].append(row)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def legend(axes: Axes, place: Any = "best", **options: Any) -> None:
    """Draw the legend if there are labelled elements, with options of matplotlib's."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc=place, framealpha=0.9, edgecolor="none", fontsize=8.5, **options)


def diagonal(axes: Axes, label: str = "calibrated") -> None:
    """Draw the line on which confidence equals accuracy."""
    axes.plot(
        [0, 1], [0, 1], color=GREY, linestyle=(0, (5, 4)), linewidth=1.2, label=label, zorder=1.5
    )


def unit_square(axes: Axes, margin: float = 0.02) -> None:
    """Set both axes from 0 to 1."""
    axes.set(xlim=(-margin, 1 + margin), ylim=(-margin, 1 + margin))


def dotted(
    axes: Axes, x: Any, y: Any, colour: str, label: str, marker: str = "o", style: Any = "-"
) -> None:
    """Draw a line through marked points."""
    axes.plot(
        *(x, y), color=colour, linestyle=style, linewidth=1.5, marker=marker, markersize=4.5, markeredgecolor="white",
        markeredgewidth=0.6, label=label, zorder=4,
    )  # fmt: skip


def bars(axes: Axes, x: list[float], intervals: list[list[float]], level: float | None) -> None:
    """Draw intervals as bars behind their points."""
    if intervals:
        axes.vlines(
            x,
            [each[0] for each in intervals],
            [each[1] for each in intervals],
            color=BLUE,
            alpha=0.45,
            linewidth=max(1.0, min(4.0, 120 / len(intervals))),
            zorder=2,
            label=f"{100 * level:.4g} % interval" if level else "interval",
        )


def density(axes: Axes, rows: list[Row], *, log: bool = False) -> None:
    """Draw the distribution of scores: share of the weight by bin, as a density on a logarithmic axis if bins differ in width."""
    total = sum(row["weight"] for row in rows)
    widths = [row["upper"] - row["lower"] for row in rows]
    even = not rows or max(widths) - min(widths) < 1e-9
    # Scores are concentrated at the ends: their narrow bins are thousands of times as dense as the wide ones.
    log |= not even
    log |= (
        bool(total)
        and len(rows) > 1
        and max(row["weight"] for row in rows) > MAX_SHARE_OF_ONE_BIN * total
    )
    name = "share" if even else "density"
    axes.set_ylabel(f"{name} (log)" if log else name)
    if not total:
        axes.set_axis_off()
        return
    drawn = [(row, width) for row, width in zip(rows, widths, strict=True) if width > 0]
    # A gap instead of white edges, which would hide low bars.
    axes.bar(
        [row["lower"] + 0.04 * width for row, width in drawn],
        [row["weight"] / total / (1 if even else width) for row, width in drawn],
        width=[0.92 * width for _, width in drawn],
        align="edge",
        color=ORANGE,
        edgecolor="none" if even else ORANGE,
        linewidth=0.0 if even else 0.8,
        log=log,
    )
    if log:
        _whole_decades(axes)


def _whole_decades(axes: Axes) -> None:
    """Show at least one decade on the axis, with ticks at powers of ten only: ticks between them would overlap."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.set_ylim(min(low, high / 12), max(high, 1.05 * 10 ** math.floor(math.log10(high))))
    axes.yaxis.set_major_locator(LogLocator(numticks=3))
    axes.yaxis.set_minor_formatter(NullFormatter())


def mark_dates(axes: Axes, at: list[datetime]) -> None:
    """Mark at most `MAX_DATES` times at equal distances. Matplotlib's own marks restart each month and may overlap."""
    marked: Any = at[:: max(1, -(-len(at) // MAX_DATES))]
    form = "%Y-%m-%d" if all(each.hour == each.minute == 0 for each in at) else "%H:%M\n%Y-%m-%d"
    axes.set_xticks(marked, [each.strftime(form) for each in marked])


def show_reason(axes: Axes, result: Result, what: str = "no data") -> None:
    """Draw a card that states that there is nothing to draw, and what is missing."""
    reason = str(result.get("reason") or what)
    missing = MISSING.get(reason) or str(result.get("detail") or "")
    card(axes, f"Nothing to draw: {reason.replace('_', ' ')}", missing)


def card(axes: Axes, title: str, text: str) -> None:
    """Draw a card instead of a figure: a title, and a text below it."""
    axes.set_axis_off()
    for drawn in (*axes.lines, *axes.collections, *axes.patches):
        drawn.remove()
    axes.text(
        *(0.5, 0.5, "\n".join(textwrap.wrap(text, 46))), ha="center", va="top", color=SLATE, fontsize=9,
        transform=axes.transAxes, zorder=6, parse_math=False,
    )  # fmt: skip
    axes.text(
        *(0.5, 0.56, title), ha="center", color=INK, fontsize=11, transform=axes.transAxes, zorder=5,
        parse_math=False, bbox={"facecolor": "white", "edgecolor": FAINT, "boxstyle": "round,pad=0.7"},
    )  # fmt: skip


def labels_of(result: Result) -> str:
    """Return the label policy of the numbers."""
    raters = str(result.get("raters") or "")
    return f"labels: {raters} ({POLICIES[raters]})" if raters in POLICIES else f"labels: {raters}"


def data_of(result: Result) -> str:
    """Return the numbers of predictions and ratings in the figure."""
    n, n_ratings = result.get("n"), result.get("n_ratings") or 0
    if n is None:
        return f"n = {n_ratings:,} ratings"
    return f"n = {n:,} labelled predictions with {n_ratings:,} ratings"


def scope_of(result: Result) -> str:
    """Return the name of the score on the axis, with the class's name where `classes` has it."""
    scope, classes = str(result.get("scope", "")), result.get("classes")
    kind, _, name = scope.partition(":")
    if classes and kind == "class" and name.isdigit():
        return f"probability of {class_named(int(name), classes)}"
    if classes and scope == "positive":
        return f"probability of {class_named(1, classes)}"
    return SCOPES.get(scope, f"probability of {scope.replace(':', ' ')}")


def class_named(index: int | str, classes: list[str] | None) -> str:
    """Return a class by its name where the model declares one, else by its number."""
    if classes and isinstance(index, int) and index < len(classes):
        name = str(classes[index])
        return f"class {name}" if name.isdigit() else short(name, 32)
    return f"class {index}"


def window_of(result: Result) -> str:
    """Return the window if the response has one."""
    window = result.get("window") or {}
    if not window.get("from"):
        return ""
    # Without data, a window of everything starts with the epoch.
    if window["from"].startswith("1970-01-01T00:00:00"):
        return f"to {to_the_minute(window['to'])}"
    start = to_the_minute(window["from"]).removesuffix(" UTC")
    return f"{start} to {to_the_minute(window['to'])}"


def short(text: str, most: int = 14) -> str:
    """Return the text, or its beginning with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
