"""A PDF document of texts, lines and figures, written from top to bottom with reportlab."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

MM = 72.0 / 25.4
WIDTH, HEIGHT = 210.0 * MM, 297.0 * MM
PRODUCER = "Calibrant"
PLAIN, BOLD = "DejaVuSans", "DejaVuSans-Bold"


class PdfDocument:
    """Pages that are written from top to bottom. Places are in points from the upper left corner.

    Parameters
    ----------
    title : of the document
    margin : around the text
    written_at : its date

    Attributes
    ----------
    y : where the page continues
    canvas : of reportlab; its places are in points from the lower left corner

    Raises
    ------
    ModuleNotFoundError
        reportlab, or matplotlib with the fonts, is not installed.
    """

    def __init__(self, title: str, margin: float, written_at: datetime) -> None:
        from reportlab.pdfbase.pdfmetrics import stringWidth
        from reportlab.pdfgen.canvas import Canvas

        register_fonts()
        self._width_of = stringWidth
        self.margin = self.y = margin
        self._file = BytesIO()
        self.canvas = Canvas(self._file, (WIDTH, HEIGHT), pageCompression=1, invariant=1, lang="en")
        self.canvas.setTitle(title)
        self.canvas.setProducer(PRODUCER)
        self.canvas.setViewerPreference("DisplayDocTitle", "true")
        # The date of a document that is the same for the same content is otherwise a constant.
        self.canvas.setDateFormatter(lambda *_: written_at.strftime("D:%Y%m%d%H%M%SZ"))

    @property
    def inner_width(self) -> float:
        """Width between the margins."""
        return WIDTH - 2.0 * self.margin

    def make_room(self, height: float) -> bool:
        """Begin a page unless this one has so much room; return whether a new one began."""
        if self.y + height <= HEIGHT - self.margin:
            return False
        self.canvas.showPage()
        self.y = self.margin
        return True

    def write(self, x: float, y: float, text: str, size: float, is_bold: bool = False) -> None:
        """Write a text on a base line."""
        self.canvas.setFont(BOLD if is_bold else PLAIN, size)
        self.canvas.drawString(x, HEIGHT - y, text)

    def width(self, text: str, size: float, is_bold: bool = False) -> float:
        """Return the width of a text."""
        return float(self._width_of(text, BOLD if is_bold else PLAIN, size))

    def line(self, y: float, width: float = 0.5) -> None:
        """Draw a line between the margins."""
        self.canvas.setLineWidth(width)
        self.canvas.line(self.margin, HEIGHT - y, WIDTH - self.margin, HEIGHT - y)

    def output(self) -> bytes:
        """Return the file; nothing can be written afterwards."""
        self.canvas.save()
        return self._file.getvalue()


@cache
def register_fonts() -> None:
    """Name the fonts that matplotlib brings, without loading matplotlib: they have every character of a report.

    Raises
    ------
    ModuleNotFoundError
        matplotlib is not installed.
    """
    from reportlab.pdfbase.pdfmetrics import registerFont
    from reportlab.pdfbase.ttfonts import TTFont

    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("matplotlib is not installed", name="matplotlib")
    folder = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
    for name in (PLAIN, BOLD):
        registerFont(TTFont(name, folder / f"{name}.ttf"))
