"""Diagrams of cases: the dataset reliability histogram and box plots over cases, drawn from the JSON answer.

Box plots show every case as a dot beside its box, since few cases make poor quartiles. Colours and manner are those
of `diagrams`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from service.diagrams import BLUE, DOTS_PER_INCH, DRAWING, FORMATS, GREY, INK, ORANGE, SLATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"ece": "ECE", "ace": "ACE", "mce": "MCE", "dice": "Dice"}
MOST_CLASSES = 12
MOST_DOTS = 400
GAMMA = 0.5


def draw_histogram(
    answer: dict[str, Any], media_type: str, *, of_class: int | None = None
) -> bytes:
    """Return the dataset reliability histogram of a cases answer.

    Parameters
    ----------
    answer : what `GET cases` answers: model, window, classes, bins, n_cases, `histogram`
    media_type : "image/svg+xml" or "image/png"
    of_class : place in `classes`; the average over classes where None

    Returns
    -------
    bytes of the image; without cases an empty diagram that says so
    """
    return _image(answer, media_type, lambda: _histogram_figure(answer, of_class))


def draw_boxes(answer: dict[str, Any], media_type: str) -> bytes:
    """Return box plots over cases: a row of them for each error and for Dice, a box a class and one for the mean.

    Parameters
    ----------
    answer, media_type : as in `draw_histogram`

    Returns
    -------
    bytes of the image; without cases an empty diagram that says so
    """
    return _image(answer, media_type, lambda: _boxes_figure(answer))


def draw_reliability_boxes(answer: dict[str, Any], media_type: str) -> bytes:
    """Return the reliability diagram of all counted classes with a box plot over cases in each bin.

    Parameters
    ----------
    answer, media_type : as in `draw_histogram`

    Returns
    -------
    bytes of the image; without cases an empty diagram that says so
    """
    return _image(answer, media_type, lambda: _reliability_figure(answer))


def _image(answer: dict[str, Any], media_type: str, make: Any) -> bytes:
    import matplotlib

    with DRAWING:
        matplotlib.rcParams["svg.hashsalt"] = "calibrant"  # the same answer gives the same bytes
        figure = make()
        image = io.BytesIO()
        kind = FORMATS[media_type]
        about = {"Title": _heading(answer)} | ({"Date": None} if kind == "svg" else {})
        figure.savefig(image, format=kind, dpi=DOTS_PER_INCH, metadata=about)
    return image.getvalue()


def _histogram_figure(answer: dict[str, Any], of_class: int | None) -> Figure:
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.0), facecolor="white")
    axes = figure.add_axes((0.115, 0.1, 0.7, 0.7467))
    shares, frequency = _shares(answer, of_class)
    axes.plot(
        [0, 1],
        [0, 1],
        color=GREY,
        linestyle=(0, (5, 4)),
        linewidth=1.2,
        label="calibrated",
        zorder=3,
    )
    if shares is None:
        _say_nothing(axes, answer)
    else:
        columns, rows = shares.shape
        mesh = axes.pcolormesh(
            np.arange(columns + 1) / columns,
            np.arange(rows + 1) / rows,
            np.ma.masked_equal(shares.T, 0.0),
            cmap="Blues",
            norm=PowerNorm(GAMMA, vmin=0.0, vmax=1.0),
            edgecolor="white",
            linewidth=0.4 if columns <= 25 else 0.0,
        )
        place = figure.add_axes((0.84, 0.1, 0.028, 0.7467))
        bar = figure.colorbar(mesh, cax=place, ticks=[0, 0.05, 0.2, 0.4, 0.6, 0.8, 1.0])
        bar.set_label("share of the cases of a column", color=SLATE, fontsize=8.5)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set_visible(False)
        centres = (np.arange(columns) + 0.5) / columns
        known = np.isfinite(frequency)
        axes.plot(
            *(centres[known], frequency[known]), color=ORANGE, linewidth=1.4, marker="o", markersize=3.5,
            markeredgecolor="white", markeredgewidth=0.6, label="mean of cases", zorder=4,
        )  # fmt: skip
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="probability of the class", ylabel="observed frequency"
    )
    axes.set_aspect("equal")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", framealpha=0.9, edgecolor="none", fontsize=8.5)
    _write_head(figure, answer, ("Reliability over cases", _which(answer, of_class), _how(answer)))
    return figure


def _shares(answer: dict[str, Any], of_class: int | None) -> tuple[Any, Any]:
    """Share of the cases by column (bins, frequency_bins), and the mean frequency; None without cases."""
    histogram = answer.get("histogram")
    if not histogram or not answer.get("cases"):
        return None, None
    counts = np.asarray(histogram["counts"], np.float64)
    if of_class is None:
        frequency = np.array([np.nan if f is None else f for f in histogram["mean_frequency"]])
        return np.asarray(histogram["mean"]), frequency
    total = counts[of_class].sum(axis=1, keepdims=True)
    shares = np.divide(
        counts[of_class], total, out=np.zeros_like(counts[of_class]), where=total > 0
    )
    frequency = histogram["mean_frequency_by_class"][of_class]
    return shares, np.array([np.nan if f is None else f for f in frequency])


def _boxes_figure(answer: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    measures = [name for name in MEASURES if answer.get("cases") and _columns(answer, name)]
    names = _box_names(answer)
    height = 1.35 + 1.75 * max(len(measures), 1)
    width = min(max(4.8, 2.0 + 1.05 * len(names)), 12.0)
    figure = Figure(figsize=(width, height), facecolor="white")
    every = np.atleast_1d(figure.subplots(max(len(measures), 1), 1, sharex=True))
    for axes, name in zip(every, measures, strict=False):
        _draw_boxes(axes, _columns(answer, name), name)
        axes.yaxis.set_label_coords(-0.6 / width, 0.5)
    if not measures:
        every[0].set_axis_off()
        _say_nothing(every[0], answer)
    else:
        every[-1].set_xticks(
            range(len(names)),
            [_short(name, 22 if len(names) < 6 else 14) for name in names],
            fontsize=8.5,
        )
        every[-1].set_xlim(-0.6, len(names) - 0.4)
        every[-1].set_xlabel("class")
    figure.subplots_adjust(
        left=0.72 / width,
        right=1 - 0.2 / width,
        top=1 - 0.98 / height,
        bottom=0.52 / height,
        hspace=0.14,
    )
    _write_head(figure, answer, ("Cases", _count(answer), _how(answer)))
    return figure


def _draw_boxes(axes: Axes, columns: list[list[float]], name: str) -> None:
    colour = ORANGE if name == "dice" else BLUE
    places = [i for i, values in enumerate(columns) if values]
    axes.boxplot(
        [columns[i] for i in places],
        positions=places,
        widths=0.5,
        showfliers=False,
        manage_ticks=False,
        boxprops={"color": colour, "linewidth": 1.2},
        whiskerprops={"color": colour, "linewidth": 1.0},
        capprops={"color": colour, "linewidth": 1.0},
        medianprops={"color": INK, "linewidth": 1.6},
    )
    for i in places:
        values = np.sort(columns[i])[:: max(1, len(columns[i]) // MOST_DOTS)]
        # Spread by rank, so that the same cases give the same picture.
        aside = 0.13 * np.sin(np.arange(len(values)) * 2.399963)
        axes.scatter(i + aside, values, s=9, color=colour, alpha=0.35, linewidth=0, zorder=1)
    if len(columns) > 1:
        axes.axvline(len(columns) - 1.5, color="#D0D0D0", linewidth=0.8)
    highest = max(max(columns[i]) for i in places)
    axes.set_ylim((-0.03, 1.03) if name == "dice" else (-0.04 * highest, 1.08 * highest or 1.0))
    axes.set_ylabel(MEASURES[name])
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)


def _columns(answer: dict[str, Any], name: str) -> list[list[float]]:
    """Values of the cases by class, then their means; empty where no case has any."""
    n = min(len(answer["classes"]), MOST_CLASSES)
    rows = [row for row in answer["cases"] if any(row["counted"])]
    columns = [
        [
            row[name]["by_class"][k]
            for row in rows
            if row["counted"][k] and row[name]["by_class"][k] is not None
        ]
        for k in range(n)
    ]
    means = [row[name]["mean"] for row in rows if row[name]["mean"] is not None]
    return [*columns, means] if means else []


def _box_names(answer: dict[str, Any]) -> list[str]:
    return [*(str(name) for name in answer.get("classes", [])[:MOST_CLASSES]), "mean"]


def _reliability_figure(answer: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.0), facecolor="white")
    axes = figure.add_axes((0.115, 0.1, 0.845, 0.7467))
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (5, 4)), linewidth=1.2, label="calibrated")
    rows = [row for row in answer.get("reliability") or [] if row["box"] is not None]
    if rows:
        axes.bxp(
            [_drawn_box(row["box"]) for row in rows],
            positions=[(row["lower"] + row["upper"]) / 2 for row in rows],
            widths=[0.55 * (row["upper"] - row["lower"]) for row in rows],
            manage_ticks=False,
            boxprops={"color": BLUE, "linewidth": 1.1},
            whiskerprops={"color": BLUE, "linewidth": 0.9},
            capprops={"color": BLUE, "linewidth": 0.9},
            medianprops={"color": INK, "linewidth": 1.4},
            flierprops={
                "marker": ".",
                "markersize": 4,
                "markerfacecolor": BLUE,
                "markeredgecolor": "none",
                "alpha": 0.45,
            },
        )
        axes.plot(
            [],
            [],
            color=BLUE,
            linewidth=1.1,
            label="cases: quartiles, whiskers at 1.5 of their distance",
        )
        axes.plot(
            [row["mean_confidence"] for row in rows], [row["observed_frequency"] for row in rows], color=ORANGE,
            linewidth=1.4, marker="o", markersize=3.5, markeredgecolor="white", markeredgewidth=0.6, zorder=4,
            label="all cases together",
        )  # fmt: skip
    else:
        _say_nothing(axes, answer)
    axes.set(
        xlim=(0, 1),
        ylim=(-0.02, 1.02),
        xlabel="probability of a class",
        ylabel="observed frequency",
    )
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", framealpha=0.9, edgecolor="none", fontsize=8.5)
    _write_head(figure, answer, ("Reliability by case", _which(answer, None, "all"), _how(answer)))
    return figure


def _drawn_box(box: dict[str, Any]) -> dict[str, Any]:
    """A box of the answer in the words of matplotlib."""
    return {
        "q1": box["lower_quartile"],
        "med": box["median"],
        "q3": box["upper_quartile"],
        "whislo": box["lower_whisker"],
        "whishi": box["upper_whisker"],
        "fliers": box["outliers"],
    }


def _say_nothing(axes: Axes, answer: dict[str, Any]) -> None:
    reason = str(answer.get("reason") or "no cases").replace("_", " ")
    axes.text(
        *(0.5, 0.42, f"Nothing to draw: {reason}"), ha="center", color=INK, fontsize=11, transform=axes.transAxes,
        backgroundcolor="white", zorder=5,
    )  # fmt: skip


def _write_head(figure: Figure, answer: dict[str, Any], lines: tuple[str, ...]) -> None:
    width, height = figure.get_size_inches()
    left = 0.72 / width
    head = f"{lines[0]}: {_heading(answer)}" if _heading(answer) else lines[0]
    figure.text(
        left,
        1 - 0.27 / height,
        head,
        fontsize=12,
        weight="bold",
        color=INK,
        va="center",
        parse_math=False,
    )
    for i, text in enumerate((*lines[1:], _window(answer))):
        figure.text(
            left,
            1 - (0.47 + 0.15 * i) / height,
            text,
            fontsize=8,
            color=SLATE,
            va="center",
            parse_math=False,
        )


def _heading(answer: dict[str, Any]) -> str:
    return _short(str(answer.get("model", "")), 32)


def _which(answer: dict[str, Any], of_class: int | None, word: str = "average over") -> str:
    names = answer.get("classes", [])
    if of_class is not None:
        return f"{_count(answer)}; class {_short(str(names[of_class]), 32)}"
    return f"{_count(answer)}; {word} {len(names)} class{'' if len(names) == 1 else 'es'}"


def _count(answer: dict[str, Any]) -> str:
    seen, kept = answer.get("n_cases", 0), answer.get("n_cases_kept", answer.get("n_cases", 0))
    text = f"{kept:,} case{'' if kept == 1 else 's'}"
    return f"{text} of about {seen:,}" if answer.get("n_cases_estimated") else text


def _how(answer: dict[str, Any]) -> str:
    parts = [
        f"{answer.get('bins', '')} {answer.get('membership', 'hard')} bins",
        f"labels: {answer.get('raters', '')}",
    ]
    parts.append("background counted" if answer.get("background") == "in" else "without background")
    missing = {
        "skip_class": "missing classes left out",
        "skip_case": "cases with a missing class left out",
    }
    return "; ".join(parts + [missing[m] for m in [answer.get("missing")] if m in missing])


def _window(answer: dict[str, Any]) -> str:
    window = answer.get("window") or {}
    return f"{window['from']} to {window['to']}" if window.get("from") else ""


def _short(text: str, most: int = 14) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
