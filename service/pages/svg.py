"""SVG figures inside a page: text stays text, colours come from the page's style sheet, so they follow light and dark.

A figure of matplotlib takes 0.4 s of CPU; these take 1 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

Point = tuple[float, float]


class SvgFigure:
    """Elements of one figure, drawn in the order in which they are added.

    Parameters
    ----------
    name : id of the figure in the page
    title, description : read by screen readers
    """

    def __init__(
        self, name: str, size: tuple[float, float], title: str, description: str = ""
    ) -> None:
        self.name, self.size = name, size
        self._about = [f'<title id="{escape(name)}-t">{escape(title)}</title>']
        if description:
            self._about.append(f'<desc id="{escape(name)}-d">{escape(description)}</desc>')
        self._labels = f"{name}-t" + (f" {name}-d" if description else "")
        self._elements: list[str] = []

    def line(self, start: Point, end: Point, style: str) -> None:
        """Draw a line."""
        self._elements.append(
            f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" class="{style}"/>'
        )

    def path(self, points: Sequence[Point], style: str, *, closed: bool = False) -> None:
        """Draw a line through points, or the area that they enclose."""
        if len(points) > 1:
            steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            self._elements.append(f'<path d="M{steps}{"Z" if closed else ""}" class="{style}"/>')

    def rectangle(self, corner: Point, width: float, height: float, style: str) -> None:
        """Draw a rectangle from its upper left corner."""
        self._elements.append(
            f'<rect x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" class="{style}"/>'
        )

    def dot(self, centre: Point, radius: float, style: str, tip: str = "") -> None:
        """Draw a dot, with a text that a pointer shows."""
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self._elements.append(
            f'<circle cx="{centre[0]:.1f}" cy="{centre[1]:.1f}" r="{radius:.1f}" class="{style}">{inside}</circle>'
        )

    def arrow(self, tip: Point, style: str) -> None:
        """Draw an arrow head that points upwards: the value is outside the axis."""
        x, y = tip
        self._elements.append(f'<path d="M{x:.1f} {y:.1f}l-4.5 8h9z" class="{style}"/>')

    def text(self, at: Point, content: str, style: str = "", anchor: str = "start") -> None:
        """Write text; `anchor` is start, middle or end."""
        self._elements.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" class="{style}" text-anchor="{anchor}">{escape(content)}</text>'
        )

    def sideways(self, at: Point, content: str, style: str) -> None:
        """Write text that reads upwards, in the middle of `at`."""
        x, y = at
        self._elements.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="middle" transform="rotate(-90 {x:.1f} {y:.1f})">'
            f"{escape(content)}</text>"
        )

    def markup(self) -> Markup:
        """Return the figure as markup."""
        width, height = self.size
        head = f'<svg class="figure" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{escape(self._labels)}">'
        return Markup(head + "".join([*self._about, *self._elements]) + "</svg>")


class Scale:
    """Places of values on an axis."""

    def __init__(self, values: tuple[float, float], places: tuple[float, float]) -> None:
        self._low, self._high = values
        self._start, self._end = places

    def __call__(self, value: float) -> float:
        """Return the place of a value; one outside the axis gets the place of its end."""
        low, high = sorted((self._low, self._high))
        inside = min(max(value, low), high)
        return self._start + (inside - self._low) / (self._high - self._low) * (
            self._end - self._start
        )

    def points(self, values: Iterable[float]) -> list[float]:
        """Return the places of values."""
        return [self(value) for value in values]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round values on an axis.

    >>> ticks(0, 0.31), ticks(-1, 7)
    ([0.0, 0.1, 0.2, 0.3], [0.0, 2.0, 4.0, 6.0])
    """
    span = high - low
    for power in range(-6, 12):
        for step in (1, 2, 5):
            size = step * 10.0**power
            if span / size <= most - 1:
                first = -(-low // size)
                return [
                    round((first + i) * size, 10)
                    for i in range(most + 1)
                    if (first + i) * size <= high + 1e-12
                ]
    return [low, high]
