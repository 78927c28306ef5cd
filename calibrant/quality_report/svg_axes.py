"""Axes that write SVG: the methods of matplotlib's axes that the figures of a report use, with the same arguments.

matplotlib takes a quarter of a second of CPU for the figures of one page, most of it for ticks and for the sizes of texts. The browser
does both for nothing, so a page is written in milliseconds. A PDF has the same figures (`pdf_figure.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

INK, TEXT, SMALL = "#222222", 10.0, 9.0
# Widths and heights of texts in multiples of their size: fonts differ, and few are wider.
CHARACTER, LINE = 0.56, 1.35
TICK, GAP, PAD = 4.0, 4.0, 4.0
HANDLE = 22.0
ANCHORS = {"left": "start", "center": "middle", "right": "end"}
CLOSE = 1e-9
Draw = Callable[["_Scale"], str]


@dataclass(frozen=True)
class _Scale:
    """Places of data on the sheet, in points from its upper left corner."""

    left: float
    top: float
    width: float
    height: float
    xlim: tuple[float, float]
    ylim: tuple[float, float]
    is_log: bool

    def x(self, value: float) -> float:
        low, high = self.xlim
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.ylim
        return self.top + self.height * (high - value) / (high - low)


@dataclass(frozen=True)
class _Mark:
    """Something drawn: its order, the element, and its line in the legend."""

    order: float
    draw: Draw
    label: str | None = None
    handle: str = ""
    is_bar: bool = False


@dataclass
class _Legend:
    is_below: bool = False
    n_columns: int = 1
    places: tuple[str, ...] = ("right", "left", "center")


class _Spines:
    """Lines around the axes: those at the left and below are always drawn, the others never."""

    def __getitem__(self, names: Any) -> _Spines:
        return self

    def set_visible(self, visible: bool) -> None:
        """Do nothing."""


class _InLayout:
    def set_in_layout(self, value: bool) -> None:
        """Do nothing: the margins are known before."""


@dataclass
class SvgAxes:
    """One pair of axes on a sheet.

    Attributes
    ----------
    size : inches
    below : inches of labels and legend below the axes
    name : of the figure, for the ids of its elements
    """

    size: tuple[float, float]
    below: float
    name: str
    spines: _Spines = field(default_factory=_Spines)
    _marks: list[_Mark] = field(default_factory=list)
    _points: list[tuple[float, float]] = field(default_factory=list)
    _xlim: tuple[float, float] | None = None
    _ylim: tuple[float, float] = (0.0, 1.0)
    _is_log: bool = False
    _is_square: bool = False
    _xticks: Sequence[float] | None = None
    _yticks: tuple[Sequence[float], Sequence[str]] | None = None
    _labels: dict[str, str] = field(default_factory=dict)
    _grid: tuple[str, str] | None = None
    _legend: _Legend | None = None

    def set_axisbelow(self, value: bool) -> None:
        """Do nothing: the grid is always below."""

    def minorticks_off(self) -> None:
        """Do nothing: there are none."""

    def set_title(self, text: str, **options: Any) -> None:
        """Do nothing: the page has the title."""

    def grid(self, color: str, linewidth: float, axis: str = "both") -> None:
        """Draw lines at the ticks of an axis or of both."""
        self._grid = (axis, f'stroke="{color}" stroke-width="{linewidth:g}"')

    def set(self, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
        """Set both limits."""
        self.set_xlim(*xlim)
        self.set_ylim(*ylim)

    def set_xlim(self, low: float, high: float) -> None:
        """Set the limits of the horizontal axis."""
        self._xlim = (float(low), float(high))

    def set_ylim(self, low: float, high: float) -> None:
        """Set the limits of the vertical axis."""
        self._ylim = (float(low), float(high))

    def get_xlim(self) -> tuple[float, float]:
        """Return the limits that were set, or those of the data with a margin."""
        if self._xlim is not None:
            return self._xlim
        known = [x for x, _ in self._points] or [0.0, 1.0]
        margin = 0.05 * (max(known) - min(known)) or 0.05
        return min(known) - margin, max(known) + margin

    def set_xscale(self, scale: str) -> None:
        """Make the horizontal axis logarithmic."""
        self._is_log = scale == "log"

    def set_aspect(self, aspect: str) -> None:
        """Make units of both axes equally long."""
        self._is_square = aspect == "equal"

    def set_xticks(self, ticks: Sequence[float], labels: Sequence[str]) -> None:
        """Set the ticks of the horizontal axis; they are written as numbers."""
        self._xticks = ticks

    def set_yticks(self, ticks: Iterable[float], labels: Sequence[str]) -> None:
        """Set the ticks of the vertical axis."""
        self._yticks = (list(ticks), labels)

    def set_xlabel(self, text: str) -> None:
        """Name the horizontal axis."""
        self._labels["x"] = text

    def set_ylabel(self, text: str) -> None:
        """Name the vertical axis."""
        self._labels["y"] = text

    def legend(self, **options: Any) -> None:
        """Show the labels: below the axes if `bbox_to_anchor` is given, else in a corner."""
        is_below = "bbox_to_anchor" in options
        places = ("left",) if options.get("loc") == "upper left" else _Legend.places
        self._legend = _Legend(is_below, int(options.get("ncols", 1)), places)

    def plot(
        self, x: Any, y: Any, *, color: str, linestyle: Any = "-", linewidth: float = 1.5, alpha: float = 1.0,
        marker: str | None = None, markersize: float = 6.0, markeredgecolor: str = "none", label: str | None = None,
        zorder: float = 2.0, solid_capstyle: str = "square",
    ) -> None:  # fmt: skip
        """Draw a line through points, or a circle at each."""
        points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        self._points += [each for each in points if not math.isnan(each[1])]
        line = f'fill="none" stroke="{color}" stroke-width="{linewidth:g}"{_dashes(linestyle)}{_alpha(alpha)}'
        circle = f'r="{markersize / 2:g}" fill="{color}" stroke="{markeredgecolor}"'

        def draw(scale: _Scale) -> str:
            if marker is not None:
                return "".join(
                    f'<circle cx="{_n(scale.x(a))}" cy="{_n(scale.y(b))}" {circle}/>'
                    for a, b in points
                )
            return "".join(
                f'<polyline points="{" ".join(f"{_n(scale.x(a))},{_n(scale.y(b))}" for a, b in run)}" {line}/>'
                for run in _runs(points)
            )

        handle = f"<line {{line}} {line}/>" if marker is None else f"<circle {{middle}} {circle}/>"
        self._marks.append(_Mark(zorder, draw, label, handle))

    def vlines(
        self, x: Any, low: Any, high: Any, *, color: str, alpha: float = 1.0, linewidth: float = 1.5,
        label: str | None = None, zorder: float = 2.0,
    ) -> None:  # fmt: skip
        """Draw vertical lines."""
        ends = [tuple(map(float, each)) for each in zip(x, low, high, strict=True)]
        line = f'stroke="{color}" stroke-width="{linewidth:g}"{_alpha(alpha)}'

        def draw(scale: _Scale) -> str:
            return "".join(
                f'<path d="M{_n(scale.x(a))} {_n(scale.y(b))}V{_n(scale.y(c))}" {line}/>'
                for a, b, c in ends
                if not math.isnan(b + c)
            )

        self._marks.append(_Mark(zorder, draw, label, f"<line {{line}} {line}/>"))

    def bar(
        self, x: Any, height: Any, width: Any, bottom: Any = 0.0, *, align: str, color: str, alpha: float = 1.0,
        edgecolor: str = "none", linewidth: float = 1.0, label: str | None = None, zorder: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw rectangles that begin at `x` and `bottom`."""
        sides = [
            tuple(map(float, each))
            for each in zip(*np.broadcast_arrays(x, bottom, width, height), strict=True)
        ]
        shape = f'fill="{color}" stroke="{edgecolor}" stroke-width="{linewidth:g}"{_alpha(alpha)}'

        def draw(scale: _Scale) -> str:
            return "".join(
                _rectangle(scale.x(a), scale.x(a + w), scale.y(b + h), scale.y(b), shape)
                for a, b, w, h in sides
            )

        self._marks.append(_Mark(zorder, draw, label, f"<rect {{box}} {shape}/>", is_bar=True))

    def axvline(
        self, x: float, *, color: str, linewidth: float, linestyle: Any = "-", label: str | None = None
    ) -> None:  # fmt: skip
        """Draw a vertical line over the complete height."""
        line = f'stroke="{color}" stroke-width="{linewidth:g}"{_dashes(linestyle)}'

        def draw(scale: _Scale) -> str:
            return f'<path d="M{_n(scale.x(x))} {_n(scale.top)}v{_n(scale.height)}" {line}/>'

        self._marks.append(_Mark(2.0, draw, label, f"<line {{line}} {line}/>"))

    def axvspan(
        self, low: float, high: float, *, color: str, alpha: float, label: str | None = None
    ) -> None:
        """Shade an interval over the complete height."""
        shape = f'fill="{color}"{_alpha(alpha)}'

        def draw(scale: _Scale) -> str:
            end = scale.top + scale.height
            return _rectangle(scale.x(low), scale.x(high), scale.top, end, shape)

        self._marks.append(_Mark(1.0, draw, label, f"<rect {{box}} {shape}/>", is_bar=True))

    def text(
        self, x: float, y: float, text: str, *, fontsize: float, color: str, ha: str, va: str
    ) -> _InLayout:
        """Write a text below a point; spaces at its ends are kept."""
        spaces = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
        text = "\u00a0" * spaces[0] + text.strip() + "\u00a0" * spaces[1]

        def draw(scale: _Scale) -> str:
            return _text(scale.x(x), scale.y(y) + 0.8 * fontsize, text, fontsize, ha, color)

        self._marks.append(_Mark(3.0, draw))
        return _InLayout()

    def svg(self) -> str:
        """Return the element for the page, without script or link; text stays text."""
        scale = self._scale()
        clip = "clip-" + "".join(each if each.isalnum() else "-" for each in self.name.lower())
        area = f'x="{_n(scale.left)}" y="{_n(scale.top)}" width="{_n(scale.width)}" height="{_n(scale.height)}"'
        drawn = "".join(
            each.draw(scale) for each in sorted(self._marks, key=lambda mark: mark.order)
        )
        width, height = (72.0 * each for each in self.size)
        return (
            f'<svg viewBox="0 0 {_n(width)} {_n(height)}"><defs><clipPath id="{clip}"><rect {area}/></clipPath></defs>'
            f'{self._frame(scale)}<g clip-path="url(#{clip})">{drawn}</g>{self._written_legend(scale)}</svg>'
        )

    def _ticks_x(self) -> Sequence[float]:
        low, high = self.get_xlim()
        return (
            nice_ticks(low, high)
            if self._xticks is None
            else [each for each in self._xticks if low <= each <= high]
        )

    def _ticks_y(self) -> tuple[Sequence[float], Sequence[str]]:
        if self._yticks is not None:
            return self._yticks
        ticks = nice_ticks(*self._ylim)
        return ticks, written_ticks(ticks)

    def _scale(self) -> _Scale:
        longest = max((len(each) for each in self._ticks_y()[1]), default=0)
        left = PAD + TICK + GAP + CHARACTER * TEXT * longest
        left += LINE * TEXT if "y" in self._labels else 0.0
        width, height = (72.0 * each for each in self.size)
        inner = (width - left - 3 * PAD, height - PAD - 72.0 * self.below)
        if self._is_square:
            side = min(inner)
            left += (inner[0] - side) / 2.0
            inner = (side, side)
        return _Scale(left, PAD, *inner, self.get_xlim(), self._ylim, self._is_log)

    def _frame(self, scale: _Scale) -> str:
        """Return grid, axes, ticks and their labels."""
        bottom, right = scale.top + scale.height, scale.left + scale.width
        xs, (ys, names) = self._ticks_x(), self._ticks_y()
        found = []
        if self._grid is not None:
            axis, line = self._grid
            across = [f"M{_n(scale.x(x))} {_n(scale.top)}V{_n(bottom)}" for x in xs if axis != "y"]
            along = [f"M{_n(scale.left)} {_n(scale.y(y))}H{_n(right)}" for y in ys if axis != "x"]
            found.append(f'<path d="{"".join(across + along)}" {line}/>')
        ticks = [f"M{_n(scale.x(x))} {_n(bottom)}v{TICK:g}" for x in xs]
        ticks += [f"M{_n(scale.left)} {_n(scale.y(y))}h{-TICK:g}" for y in ys]
        axes = f"M{_n(scale.left)} {_n(scale.top)}V{_n(bottom)}H{_n(right)}"
        found.append(
            f'<path d="{axes}{"".join(ticks)}" fill="none" stroke="{INK}" stroke-width="0.9"/>'
        )
        under = bottom + TICK + TEXT
        found += [
            _text(scale.x(x), under, name, TEXT, "center")
            for x, name in zip(xs, written_ticks(xs), strict=True)
        ]
        beside = scale.left - TICK - GAP / 2.0
        found += [
            _text(beside, scale.y(y) + 0.35 * TEXT, name, TEXT, "right")
            for y, name in zip(ys, names, strict=True)
        ]
        middle = scale.left + scale.width / 2.0
        if "x" in self._labels:
            found.append(_text(middle, under + LINE * TEXT, self._labels["x"], TEXT, "center"))
        if "y" in self._labels:
            longest = max((len(each) for each in names), default=0)
            x = beside - CHARACTER * TEXT * longest - GAP
            turned = f' transform="rotate(-90 {_n(x)} {_n(scale.top + scale.height / 2.0)})"'
            height = scale.top + scale.height / 2.0
            found.append(_text(x, height, self._labels["y"], TEXT, "center", more=turned))
        return "".join(found)

    def _written_legend(self, scale: _Scale) -> str:
        shown = sorted((each for each in self._marks if each.label), key=lambda each: each.is_bar)
        if self._legend is None or not shown:
            return ""
        n_rows = -(-len(shown) // self._legend.n_columns)
        columns = [shown[at : at + n_rows] for at in range(0, len(shown), n_rows)]
        widths = [
            HANDLE + 2 * GAP + CHARACTER * SMALL * max(len(each.label or "") for each in column)
            for column in columns
        ]
        width, row = sum(widths) + GAP * (len(columns) - 1), LINE * SMALL + 1.0
        box = (width, n_rows * row + GAP)
        if self._legend.is_below:
            left = scale.left + (scale.width - width) / 2.0
            top = scale.top + scale.height + TICK + 2.4 * LINE * TEXT
            found = ""
        else:
            left, top = self._free_corner(scale, *box)
            found = _rectangle(
                left, left + width, top, top + box[1], 'fill="#ffffff" opacity="0.9"'
            )
        for column, wide in zip(columns, widths, strict=True):
            for place, each in enumerate(column):
                found += _legend_line(each, left, top + place * row, row)
            left += wide + GAP
        return found

    def _free_corner(self, scale: _Scale, width: float, height: float) -> tuple[float, float]:
        """Return the place at the top where a legend covers least of the lines."""
        assert self._legend is not None
        ends = {
            "left": scale.left + GAP,
            "right": scale.left + scale.width - width - GAP,
            "center": scale.left + (scale.width - width) / 2.0,
        }
        low, high = scale.xlim
        seen = [(scale.x(x), scale.y(y)) for x, y in self._points if low <= x <= high]
        top = scale.top + GAP

        def covered(place: str) -> int:
            return sum(0 <= x - ends[place] <= width and 0 <= y - top <= height for x, y in seen)

        return ends[min(self._legend.places, key=covered)], top


def nice_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return round numbers in an interval.

    >>> nice_ticks(-0.02, 1.02), nice_ticks(0.6926, 0.7023)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.694, 0.696, 0.698, 0.7, 0.702])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(each * power for each in (1, 2, 5, 10) if (high - low) / (each * power) <= most)
    first, last = math.ceil(low / step - CLOSE), math.floor(high / step + CLOSE)
    return [float(f"{step * place:.12g}") for place in range(first, last + 1)]


def written_ticks(ticks: Sequence[float]) -> list[str]:
    """Return numbers with the digits that all of them need.

    >>> written_ticks([0.0, 0.2, 1.0]), written_ticks([0.5, 1, 20])
    (['0.0', '0.2', '1.0'], ['0.5', '1.0', '20.0'])
    """
    plain = [f"{each:.12g}" for each in ticks]
    if any("e" in each for each in plain):
        return plain
    digits = max((len(each.partition(".")[2]) for each in plain), default=0)
    return [f"{each:.{digits}f}" for each in ticks]


def _runs(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Divide a line where a point is missing."""
    found: list[list[tuple[float, float]]] = [[]]
    for each in points:
        if math.isnan(each[1]):
            found.append([])
        else:
            found[-1].append(each)
    return [run for run in found if len(run) > 1]


def _legend_line(mark: _Mark, left: float, top: float, height: float) -> str:
    middle = top + height / 2.0
    handle = (
        mark.handle.replace(
            "{line}",
            f'x1="{_n(left)}" y1="{_n(middle)}" x2="{_n(left + HANDLE)}" y2="{_n(middle)}"',
        )
        .replace("{middle}", f'cx="{_n(left + HANDLE / 2)}" cy="{_n(middle)}"')
        .replace(
            "{box}",
            f'x="{_n(left)}" y="{_n(middle - 3.5)}" width="{HANDLE:g}" height="7"',
        )
    )
    return handle + _text(left + HANDLE + GAP, middle + 0.35 * SMALL, mark.label or "", SMALL, "left")  # fmt: skip


def _text(
    x: float, y: float, text: str, size: float, align: str, color: str = INK, more: str = ""
) -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" font-size="{size:g}" text-anchor="{ANCHORS[align]}" fill="{color}"{more}>'
        f"{escape(text)}</text>"
    )


def _rectangle(left: float, right: float, top: float, bottom: float, shape: str) -> str:
    return f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}" {shape}/>'


def _dashes(style: Any) -> str:
    return f' stroke-dasharray="{" ".join(map(str, style[1]))}"' if isinstance(style, tuple) else ""


def _alpha(alpha: float) -> str:
    return "" if alpha == 1.0 else f' opacity="{alpha:g}"'


def _n(value: float) -> str:
    """Return a place with a hundredth of a point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
