"""Figures of a report inside its PDF: the elements of their SVG (`svg_axes.py`) as operators, so that both look alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calibrant.quality_report.pdf_document import HEIGHT, PdfDocument

COLORS = {"white": "#ffffff", "black": "#000000"}
# Of the ends of a circle's quarters: where the handles of their curves are.
ROUND = 0.5522847498
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
    factor = width / figure_size(elements)[0]
    operators = document.pages[-1]
    operators.append(f"q {_n(factor)} 0 0 {_n(-factor)} {_n(left)} {_n(HEIGHT - top)} cm")
    clip = ""
    for place, each in enumerate(elements):
        if each.tag == "clippath":
            clip = f"{_rectangle(elements[place + 1])} W n"
        elif each.tag == "g":
            operators.append(f"q {clip}")
        elif each.tag == "/g":
            operators.append("Q")
        elif each.tag == "text":
            operators.append(_text(document, each))
        elif not (place and elements[place - 1].tag == "clippath"):
            operators += _shape(document, each)
    operators.append("Q")


def _shape(document: PdfDocument, each: SvgElement) -> Iterator[str]:
    outline = _outline(each)
    filled, line = _color(each.values.get("fill")), _color(each.values.get("stroke"))
    if not outline or not (filled or line):
        return
    opacity = each.number("opacity", 1.0)
    yield "q" if opacity == 1.0 else f"q /{document.state_of(opacity)} gs"
    if filled:
        yield f"{filled} rg"
    if line:
        dashes = each.values.get("stroke-dasharray")
        yield f"{line} RG {_n(each.number('stroke-width', 1.0))} w" + (f" [{dashes}] 0 d" if dashes else "")  # fmt: skip
    yield f"{outline} {'B' if filled and line else 'f' if filled else 'S'} Q"


def _outline(each: SvgElement) -> str:
    if each.tag == "rect":
        return _rectangle(each)
    if each.tag == "circle":
        return _circle(each.number("cx"), each.number("cy"), each.number("r"))
    if each.tag == "line":
        x1, y1, x2, y2 = (_n(each.number(name)) for name in ("x1", "y1", "x2", "y2"))
        return f"{x1} {y1} m {x2} {y2} l"
    if each.tag == "polyline":
        points = [point.replace(",", " ") for point in each.values["points"].split()]
        return " ".join(f"{point} {'l' if place else 'm'}" for place, point in enumerate(points))
    return _path(each.values.get("d", "")) if each.tag == "path" else ""


def _rectangle(each: SvgElement) -> str:
    sides = [each.number(name) for name in ("x", "y", "width", "height")]
    return f"{' '.join(map(_n, sides))} re"


def _circle(x: float, y: float, r: float) -> str:
    h = ROUND * r
    quarters = [
        (x + r, y + h, x + h, y + r, x, y + r),
        (x - h, y + r, x - r, y + h, x - r, y),
        (x - r, y - h, x - h, y - r, x, y - r),
        (x + h, y - r, x + r, y - h, x + r, y),
    ]
    curves = " ".join(f"{' '.join(map(_n, each))} c" for each in quarters)
    return f"{_n(x + r)} {_n(y)} m {curves} h"


def _path(text: str) -> str:
    """Return a path of straight lines, along the axes from point to point."""
    x = y = 0.0
    found = []
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
        found.append(f"{_n(x)} {_n(y)} {'m' if command == 'M' else 'l'}")
    return " ".join(found)


def _text(document: PdfDocument, each: SvgElement) -> str:
    size, text = each.number("font-size"), each.text
    back = ANCHORS[each.values.get("text-anchor", "start")] * document.width(text, size)
    turn = [float(number) for number in NUMBER.findall(each.values.get("transform", ""))]
    angle, x0, y0 = turn or (0.0, 0.0, 0.0)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    dx, dy = each.number("x") - back - x0, each.number("y") - y0
    place = (x0 + cosine * dx - sine * dy, y0 + sine * dx + cosine * dy)
    # The page's own axis points down here, and letters upwards.
    matrix = " ".join(map(_n, (cosine, sine, sine, -cosine, *place)))
    color = _color(each.values.get("fill")) or "0 0 0"
    return f"q {color} rg {document.shown(text, size, False, matrix)} Q"


def _color(name: str | None) -> str:
    """Return a color as operands; none for no color."""
    if name is None or name == "none":
        return ""
    digits = COLORS.get(name, name).lstrip("#")
    return " ".join(f"{int(digits[at : at + 2], 16) / 255:.3g}" for at in (0, 2, 4))


def _n(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")
