"""Figures of a report inside its PDF: the elements of their SVG (`svg_axes.py`), so that both look alike."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibrant.quality_report.pdf_document import HEIGHT, PLAIN, PdfDocument

COLORS = {"white": "#ffffff", "black": "#000000"}
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}
COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
NUMBER = re.compile(r"-?[\d.]+")


@dataclass(frozen=True)
class SvgElement:
    """An element of a figure.

    Attributes
    ----------
    tag : "/g" is the end of a group
    """

    tag: str
    values: Mapping[str, str]
    text: str = ""

    def number(self, name: str, default: float = 0.0) -> float:
        """Return the value of an attribute."""
        return float(self.values.get(name, default))


def figure_size(elements: Sequence[SvgElement]) -> tuple[float, float]:
    """Return width and height of a figure in its own units."""
    _, _, width, height = map(float, elements[0].values["viewbox"].split())
    return width, height


def draw_figure(
    document: PdfDocument, elements: Sequence[SvgElement], left: float, top: float, width: float
) -> None:
    """Draw a figure with its upper left corner at a place of the page."""
    canvas = document.canvas
    factor = width / figure_size(elements)[0]
    canvas.saveState()
    # The axis of a figure points down.
    canvas.transform(factor, 0, 0, -factor, left, HEIGHT - top)
    clip: SvgElement | None = None
    for place, each in enumerate(elements):
        if each.tag == "clippath":
            clip = elements[place + 1]
        elif each.tag == "g":
            canvas.saveState()
            if clip is not None:
                canvas.clipPath(_outline(canvas, clip), stroke=0, fill=0)
        elif each.tag == "/g":
            canvas.restoreState()
        elif each.tag == "text":
            _text(document, each)
        elif each is not clip:
            _shape(canvas, each)
    canvas.restoreState()


def _shape(canvas: Any, each: SvgElement) -> None:
    outline = _outline(canvas, each)
    filled, line = _color(each.values.get("fill")), _color(each.values.get("stroke"))
    if outline is None or not (filled or line):
        return
    canvas.saveState()
    opacity = each.number("opacity", 1.0)
    if filled:
        canvas.setFillColor(filled, opacity)
    if line:
        canvas.setStrokeColor(line, opacity)
        canvas.setLineWidth(each.number("stroke-width", 1.0))
        canvas.setDash([float(n) for n in NUMBER.findall(each.values.get("stroke-dasharray", ""))])
    canvas.drawPath(outline, stroke=bool(line), fill=bool(filled))
    canvas.restoreState()


def _outline(canvas: Any, each: SvgElement) -> Any:
    """Return the outline of an element as a path; None for one that has none."""
    path = canvas.beginPath()
    if each.tag == "rect":
        path.rect(*(each.number(name) for name in ("x", "y", "width", "height")))
    elif each.tag == "circle":
        path.circle(*(each.number(name) for name in ("cx", "cy", "r")))
    elif each.tag == "line":
        x1, y1, x2, y2 = (each.number(name) for name in ("x1", "y1", "x2", "y2"))
        _through(path, [(x1, y1), (x2, y2)])
    elif each.tag == "polyline":
        points = (point.split(",") for point in each.values["points"].split())
        _through(path, [(float(x), float(y)) for x, y in points])
    elif each.tag == "path":
        _along(path, each.values.get("d", ""))
    else:
        return None
    return path


def _through(path: Any, points: Sequence[tuple[float, float]]) -> None:
    """Draw straight lines through points."""
    for place, point in enumerate(points):
        (path.lineTo if place else path.moveTo)(*point)


def _along(path: Any, text: str) -> None:
    """Draw straight lines along the axes from point to point."""
    x = y = 0.0
    for command, given in COMMAND.findall(text):
        numbers = [float(each) for each in NUMBER.findall(given)]
        if command == "M":
            x, y = numbers
        elif command in "Hh":
            x = numbers[0] + (x if command == "h" else 0.0)
        elif command in "Vv":
            y = numbers[0] + (y if command == "v" else 0.0)
        else:
            raise ValueError(f"a figure has a path with {command}, which is not drawn in a PDF")
        (path.moveTo if command == "M" else path.lineTo)(x, y)


def _text(document: PdfDocument, each: SvgElement) -> None:
    canvas, size = document.canvas, each.number("font-size")
    back = ANCHORS[each.values.get("text-anchor", "start")] * document.width(each.text, size)
    turn = [float(number) for number in NUMBER.findall(each.values.get("transform", ""))]
    angle, x0, y0 = turn or (0.0, 0.0, 0.0)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    dx, dy = each.number("x") - back - x0, each.number("y") - y0
    place = (x0 + cosine * dx - sine * dy, y0 + sine * dx + cosine * dy)
    canvas.saveState()
    # The axis of the figure points down, and letters upwards.
    canvas.transform(cosine, sine, sine, -cosine, *place)
    canvas.setFillColor(_color(each.values.get("fill")) or COLORS["black"])
    canvas.setFont(PLAIN, size)
    canvas.drawString(0, 0, each.text)
    canvas.restoreState()


def _color(name: str | None) -> str:
    """Return a color with its digits; none for no color."""
    return "" if name is None or name == "none" else COLORS.get(name, name)
