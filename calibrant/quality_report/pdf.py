"""A report as PDF: the headings, sentences, tables and figures of its page.

The page is the one source: its elements are read from the HTML, so that both have the same words, numbers and figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from calibrant.core.extras import pip_install
from calibrant.quality_report.pdf_document import MM, PdfDocument
from calibrant.quality_report.pdf_figure import SvgElement, draw_figure, figure_size

HEADINGS = {"h1": 17.0, "h2": 13.0, "h3": 10.5}
TEXTS = ("p", "li", "strong", "figcaption")
# Points: sizes of texts, from line to line, around the page, of a figure, of a heading and the beginning of what follows.
SIZE, TABLE_SIZE, LINE = 9.0, 7.5, 4.4 * MM
MARGIN, FIGURE, HEADING = 16.0 * MM, 120.0 * MM, 25.0 * MM
PAD = 1.0 * MM
# Of a line: where letters stand.
BASE = 0.72


@dataclass
class PageBlock:
    """One element of the page: a heading, a text, a table, or a figure."""

    kind: str
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)
    has_head: bool = False
    elements: list[SvgElement] = field(default_factory=list)


class _Page(HTMLParser):
    """Reads the elements of the page in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[PageBlock] = []
        self._open: list[str] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "svg" and "svg" not in self._open:
            self.blocks.append(PageBlock("figure"))
        if tag == "svg" or "svg" in self._open:
            self.blocks[-1].elements.append(SvgElement(tag, {k: v or "" for k, v in attrs}))
        if tag == "table":
            self.blocks.append(PageBlock("table"))
        if tag == "tr":
            self.blocks[-1].rows.append([])
        if tag == "thead":
            self.blocks[-1].has_head = True
        if tag in (*HEADINGS, *TEXTS, "th", "td"):
            self._text = ""
        if tag not in ("meta", "br", "path", "use", "rect"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "g" and "svg" in self._open:
            self.blocks[-1].elements.append(SvgElement("/g", {}))
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if {"svg", "head", "style"} & {*self._open, tag}:
            return
        text = " ".join(self._text.split())
        if tag in ("th", "td"):
            self.blocks[-1].rows[-1].append(text)
        elif tag in HEADINGS or tag in TEXTS:
            # The words of <strong> inside a paragraph are part of it.
            if text and not (tag == "strong" and "p" in self._open):
                self.blocks.append(PageBlock(tag, text))
            if not (tag == "strong" and "p" in self._open):
                self._text = ""

    def handle_data(self, data: str) -> None:
        if "svg" in self._open and self._open[-1] == "text":
            elements = self.blocks[-1].elements
            elements[-1] = replace(elements[-1], text=elements[-1].text + data)
        if not {"svg", "head", "style"} & {*self._open}:
            self._text += data


def blocks_of(page: str) -> list[PageBlock]:
    """Return the elements of a report's page."""
    parser = _Page()
    parser.feed(page)
    return parser.blocks


def pdf(page: str, title: str, written_at: datetime | None = None) -> bytes:
    """Return a report as PDF.

    Parameters
    ----------
    page : of the report, as HTML
    title : of the document
    written_at : its date. Default: none, so that the same page gives the same bytes

    Raises
    ------
    ImportError
        reportlab, or matplotlib with the fonts, is not installed.
    """
    date = written_at or datetime(2000, 1, 1, tzinfo=UTC)
    try:
        document = PdfDocument(title, MARGIN, date)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"PDF files need {error.name}, which is not installed. Install the extra: {pip_install('pdf')}"
        ) from error
    _write_all(document, blocks_of(page))
    return document.output()


def load_pdf() -> None:
    """Load what the first PDF of a process loads, such as the fonts: a server does so when it starts.

    Raises
    ------
    ImportError
        As `pdf`.
    """
    pdf("<p>Calibrant</p>", "")


def _write_all(document: PdfDocument, blocks: list[PageBlock]) -> None:
    for place, block in enumerate(blocks):
        if block.kind in HEADINGS:
            document.make_room(_height_with_next(blocks[place:]))
        _write(document, block)


def _height_with_next(blocks: list[PageBlock]) -> float:
    """Return the height of headings and what follows them: none is left alone at the end of a page."""
    n = next((n for n, each in enumerate(blocks) if each.kind not in HEADINGS), len(blocks))
    is_figure = n < len(blocks) and blocks[n].kind == "figure"
    return HEADING * max(n, 1) / 2.0 + (_height(blocks[n]) if is_figure else HEADING / 2.0)


def _height(figure: PageBlock) -> float:
    width, height = figure_size(figure.elements)
    return height * FIGURE / width


def _write(document: PdfDocument, block: PageBlock) -> None:
    if block.kind in HEADINGS:
        size = HEADINGS[block.kind]
        document.y += LINE / 2.0
        _lines(document, block.text, size, size * 0.5 * MM, is_bold=True)
    elif block.kind == "table":
        _table(document, block)
    elif block.kind == "figure":
        document.make_room(_height(block))
        draw_figure(document, block.elements, MARGIN, document.y, FIGURE)
        document.y += _height(block)
    else:
        text = f"• {block.text}" if block.kind == "li" else block.text
        _lines(document, text, SIZE, LINE, is_bold=block.kind == "strong")
    document.y += LINE / 4.0


def _lines(document: PdfDocument, text: str, size: float, height: float, is_bold: bool) -> None:
    for line in wrapped(document, text, size, document.inner_width, is_bold):
        document.make_room(height)
        document.write(MARGIN, document.y + BASE * height, line, size, is_bold)
        document.y += height


def wrapped(
    document: PdfDocument, text: str, size: float, width: float, is_bold: bool = False
) -> list[str]:
    """Return a text in lines of at most this width; a word that is wider is divided."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if document.width(joined, size, is_bold) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if lines[-1] and document.width(lines[-1] + character, size, is_bold) > width:
                lines.append("")
            lines[-1] += character
    return lines


def _table(document: PdfDocument, block: PageBlock) -> None:
    """Write a table; the first column is wider, because it has the names. A new page repeats the head."""
    n = max(map(len, block.rows), default=0)
    if not n:
        return
    shares = (2, 3) if n == 2 else (3, *(2 for _ in range(n - 1)))
    widths = [document.inner_width * each / sum(shares) for each in shares]
    rows = [
        [
            wrapped(document, text, TABLE_SIZE, width - 2.0 * PAD, block.has_head and not place)
            for text, width in zip([*row, *[""] * (n - len(row))], widths, strict=True)
        ]
        for place, row in enumerate(block.rows)
    ]
    for place, row in enumerate(rows):
        is_head = block.has_head and not place
        height = LINE * max(map(len, row))
        # A head stays with the first row.
        room = height + (LINE * max(map(len, rows[1])) if is_head and len(rows) > 1 else 0.0)
        if document.make_room(room) and block.has_head and place:
            _row(document, rows[0], widths, is_head=True)
        elif place:
            document.line(document.y)
        _row(document, row, widths, is_head)


def _row(document: PdfDocument, cells: list[list[str]], widths: list[float], is_head: bool) -> None:
    x = MARGIN
    for lines, width in zip(cells, widths, strict=True):
        for place, line in enumerate(lines):
            y = document.y + (place + BASE) * LINE
            document.write(x + PAD, y, line, TABLE_SIZE, is_head)
        x += width
    document.y += LINE * max(map(len, cells))
    if is_head:
        document.line(document.y)
