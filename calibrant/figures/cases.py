"""Heading lines and box plots of figures of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant.core.documents import Result, Row
from calibrant.figures.base import BLUE, INK, labels_of, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def cases_line(result: Result, of_class: int | None, word: str = "average over") -> str:
    """Return the number of cases and their classes."""
    names = result.get("classes", [])
    if of_class is not None and of_class < len(names):
        return f"{count_line(result)}; class {short(str(names[of_class]), 32)}"
    return f"{count_line(result)}; {word} {len(names)} class{'' if len(names) == 1 else 'es'}"


def count_line(result: Result) -> str:
    """Return the number of cases with tables, and of all cases."""
    n_cases, stored = result.get("n_cases", 0), result.get("n_cases_kept", result.get("n_cases", 0))
    text = f"{stored:,} case{'' if stored == 1 else 's'}"
    return f"{text} of about {n_cases:,}" if result.get("n_cases_estimated") else text


def options_line(result: Result) -> str:
    """Return bins, label policy, background and missing classes."""
    parts = [f"{result.get('bins', '')} {result.get('membership', 'hard')} bins", labels_of(result)]
    parts.append("background counted" if result.get("background") == "in" else "without background")
    missing = {
        "skip_class": "missing classes left out",
        "skip_case": "cases with a missing class left out",
    }
    return "; ".join(parts + [missing[m] for m in [result.get("missing")] if m in missing])


def draw_boxes_at(axes: Axes, boxes: list[Row], positions: list[float], widths: Any) -> None:
    """Draw boxes of the response at places on the axis."""
    axes.bxp(
        [_in_its_words(box) for box in boxes],
        positions=positions,
        widths=widths,
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


def _in_its_words(box: Row) -> Row:
    """Return a box of the response in the terms of matplotlib."""
    return {
        "q1": box["lower_quartile"],
        "med": box["median"],
        "q3": box["upper_quartile"],
        "whislo": box["lower_whisker"],
        "whishi": box["upper_whisker"],
        "fliers": box["outliers"],
    }
