"""What an SVG figure shows: its texts, and its lines and bars in data coordinates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

SVG = "{http://www.w3.org/2000/svg}"
UNIT = (-0.02, 1.02)  # limits of `unit_square`
Points = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A drawn figure, whose texts are texts."""

    root: ElementTree.Element

    @classmethod
    def of(cls, drawn: bytes) -> Figure:
        return cls(ElementTree.fromstring(drawn))

    @property
    def texts(self) -> list[str]:
        return ["".join(each.itertext()).strip() for each in self.root.iter(f"{SVG}text")]

    def lines(
        self,
        colour: str,
        axes: int = 1,
        x: tuple[float, float] = UNIT,
        y: tuple[float, float] = UNIT,
    ) -> list[Points]:
        """Lines of a colour in data coordinates, float64 (n, 2) each; `x` and `y` are the limits of the axes."""
        return self._paths("stroke", colour, axes, x, y)

    def shapes(
        self,
        colour: str,
        axes: int = 1,
        x: tuple[float, float] = UNIT,
        y: tuple[float, float] = UNIT,
    ) -> list[Points]:
        """Corners of filled shapes of a colour, as `lines`."""
        return self._paths("fill", colour, axes, x, y)

    def frame(self, axes: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of axes, in points."""
        corners = _points(self._axes(axes).find(f"{SVG}g/{SVG}path"))
        return (*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist())

    def _axes(self, number: int) -> ElementTree.Element:
        group = self.root.find(f".//{SVG}g[@id='axes_{number}']")
        assert group is not None, f"the figure has no axes {number}"
        return group

    def _paths(
        self, kind: str, colour: str, axes: int, x: tuple[float, float], y: tuple[float, float]
    ) -> list[Points]:
        if self._axes(axes).find(f"{SVG}g/{SVG}path") is None:
            return []  # a card, without axes and marks
        left, top, right, bottom = self.frame(axes)
        low, high = np.array([x[0], y[1]]), np.array([x[1], y[0]])
        found = []
        # Paths without a clip path belong to the legend.
        for path in self._axes(axes).iter(f"{SVG}path"):
            drawn = re.search(rf"{kind}: (#\w+)", path.get("style", ""))
            if drawn and drawn[1] == colour.lower() and path.get("clip-path"):
                share = (_points(path) - (left, top)) / (right - left, bottom - top)
                found.append(low + share * (high - low))
        return found


def _points(path: ElementTree.Element | None) -> Points:
    assert path is not None
    return np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", "")), np.float64)
