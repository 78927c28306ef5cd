"""Plots of several metrics: values and differences with intervals, one panel per unit.

Calibration errors are probabilities and share an axis from 0. Every other metric has an axis of its own: on a common
one, the largest would hide the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from calibrant.core.extras import pip_install
from calibrant.metrics import METRICS, is_error
from calibrant.metrics.estimate import Estimate
from calibrant.plots import BLUE, FAINT, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from calibrant.results import Comparison, Difference, Report

WIDTH, ROW, PANEL, HEAD = 6.8, 0.3, 0.42, 0.35
ERRORS = "Calibration errors, in probability; smaller is better"
BETTER = {"lower": "smaller is better", "higher": "larger is better", "zero": "nearer 0 is better"}
INTERVAL, NULL = "interval", "null"
DOT: dict[str, Any] = {
    "color": BLUE, "marker": "o", "markersize": 6, "markeredgecolor": "white", "linestyle": "none", "zorder": 4,
}  # fmt: skip


def plot_report(report: Report) -> Figure:
    """Draw each value with its interval, and where calibrated models are: from their mean to their 95 % limit."""
    names = [name for name, each in report.items() if each.value is not None]

    def draw(axes: Axes, place: int, name: str) -> None:
        _draw_estimate(axes, place, report[name])

    level = f"{100 * report.about['ci']:g} % interval"
    texts = {INTERVAL: level, NULL: "calibrated model: mean to 95 % limit"}
    return _figure(names, draw, texts, has_floor=True)


def plot_comparison(comparison: Comparison) -> Figure:
    """Draw each difference with its interval around 0."""
    names = [name for name, each in comparison.items() if each.value is not None]

    def draw(axes: Axes, place: int, name: str) -> None:
        _draw_difference(axes, place, comparison[name])

    texts = {INTERVAL: f"{100 * comparison.about['ci']:g} % interval of first minus second"}
    figure = _figure(names, draw, texts, has_floor=False)
    for axes in figure.axes if names else ():
        axes.axvline(0.0, color=GREY, linestyle=(0, (5, 4)), linewidth=1.2, zorder=1)
    return figure


def _panels(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return heading and metrics of each panel, calibration errors first.

    >>> _panels(["accuracy", "ece", "brier", "mce"])[0]
    ('Calibration errors, in probability; smaller is better', ['ece', 'mce'])
    """
    listed = list(names)
    errors = [name for name in listed if is_error(_slug(name))]
    panels = [(ERRORS, errors)] if errors else []
    return panels + [(_heading(name), [name]) for name in listed if name not in errors]


def _slug(name: str) -> str:
    return name.partition("(")[0]


def _heading(name: str) -> str:
    metric = METRICS[_slug(name)]
    unit = f", in {metric.unit}" if metric.unit == "nats" else ""
    return f"{metric.title}{unit}; {BETTER.get(metric.direction, '')}".rstrip("; ")


def _figure(
    names: list[str],
    draw: Callable[[Axes, int, str], None],
    texts: Mapping[str, str],
    *,
    has_floor: bool,
) -> Figure:
    """Return the figure of all panels; `has_floor` if calibration errors are drawn from 0."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"Plots need matplotlib, which is not installed. Install the extra: {pip_install('plot')}"
        ) from error
    panels = _panels(names)
    heights = [PANEL + ROW * len(rows) for _, rows in panels] or [1.0]
    figure = plt.figure(figsize=(WIDTH, HEAD + sum(heights) + PANEL), layout="constrained")
    if not panels:
        text = "Nothing to draw: no metric has a value"
        figure.text(0.5, 0.5, text, ha="center", va="center")
        return figure
    every = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (heading, rows) in zip(every, panels, strict=True):
        for place, name in enumerate(reversed(rows)):
            draw(axes, place, name)
        _style(axes, heading, rows)
        if has_floor and heading == ERRORS:
            axes.set_xlim(left=min(0.0, axes.dataLim.x0))
    _name_lines(figure, every, texts)
    return figure


def _style(axes: Axes, heading: str, rows: list[str]) -> None:
    axes.set_title(heading, fontsize=9, loc="left", color="#444444")
    axes.set_yticks(range(len(rows)), list(reversed(rows)))
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.margins(x=0.08)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=FAINT, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.locator_params(axis="x", nbins=6)


def _draw_estimate(axes: Axes, place: int, estimate: Estimate) -> None:
    if estimate.null_mean is not None:
        end = estimate.null_mean if estimate.null_q95 is None else estimate.null_q95
        _band(axes, place, (estimate.null_mean, end))
    if estimate.interval is not None:
        _bar(axes, place, estimate.interval)
    axes.plot([float(estimate)], [place], **DOT)


def _draw_difference(axes: Axes, place: int, difference: Difference) -> None:
    if difference.interval is not None:
        _bar(axes, place, difference.interval)
    axes.plot([float(difference)], [place], **DOT)


def _bar(axes: Axes, place: int, interval: tuple[float, float]) -> None:
    axes.plot(interval, [place] * 2, color=BLUE, linewidth=1.8, label=INTERVAL, zorder=3)


def _band(axes: Axes, place: int, bounds: tuple[float, float]) -> None:
    """Draw where calibrated models are; a limit that is not known leaves a mark at their mean."""
    shown: dict[str, Any] = {"color": ORANGE, "alpha": 0.4, "solid_capstyle": "butt", "zorder": 2}
    if bounds[0] == bounds[1]:
        shown = {
            "color": ORANGE,
            "alpha": 0.7,
            "marker": "|",
            "markersize": 11,
            "linestyle": "none",
        }
    axes.plot(bounds, [place] * 2, linewidth=8, label=NULL, **shown)


def _name_lines(figure: Figure, every: Iterable[Axes], texts: Mapping[str, str]) -> None:
    """Name the lines once, below all panels."""
    first: dict[str, Any] = {}
    for axes in every:
        handles, labels = axes.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            first.setdefault(label, handle)
    shown = [name for name in (INTERVAL, NULL) if name in first and name in texts]
    if shown:
        figure.legend(
            [first[name] for name in shown], [texts[name] for name in shown], loc="outside lower center",
            ncols=2, frameon=False, fontsize=9,
        )  # fmt: skip
