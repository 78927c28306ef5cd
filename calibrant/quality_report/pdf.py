"""A report as PDF: the headings, sentences and tables of its page, with its figures as images. Needs the extra `pdf` (fpdf2).

The page is the one source: its elements are read from the HTML, so that both have the same words and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calibrant.core.extras import pip_install

HEADINGS = {"h1": 17.0, "h2": 13.0, "h3": 10.5}
TEXTS = ("p", "li", "strong", "figcaption")
SIZE, LINE = 9.0, 4.4
MARGIN_MM = 16
IMAGE_MM = 120
HEADING_MM = 25  # of a heading and the beginning of what follows


def writes_pdf() -> bool:
    """Return whether the package that writes PDF files is installed."""
    return find_spec("fpdf") is not None


@dataclass
class PageBlock:
    """One element of the page: a heading, a text, a table, or the place of a figure."""

    kind: str
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)
    has_head: bool = False


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
        if not {"svg", "head", "style"} & {*self._open}:
            self._text += data


def blocks_of(page: str) -> list[PageBlock]:
    """Return the elements of a report's page."""
    parser = _Page()
    parser.feed(page)
    return parser.blocks


def pdf(
    page: str, images: Sequence[bytes], title: str, written_at: datetime | None = None
) -> bytes:
    """Return a report as PDF.

    Parameters
    ----------
    page : of the report, as HTML
    images : its figures as PNG, in their order
    title : of the document
    written_at : its date. Default: none, so that the same page gives the same bytes

    Raises
    ------
    ImportError
        fpdf2 is not installed.
    """
    try:
        from fpdf import FPDF
    except ModuleNotFoundError as error:
        raise ImportError(
            f"PDF files need fpdf2, which is not installed. Install the extra: {pip_install('pdf')}"
        ) from error
    document: Any = FPDF(format="A4")
    document.set_creation_date(written_at or datetime(2000, 1, 1, tzinfo=UTC))
    document.set_title(title)
    document.set_margins(MARGIN_MM, MARGIN_MM)
    document.set_auto_page_break(True, MARGIN_MM)
    for style, name in (("", "DejaVuSans.ttf"), ("B", "DejaVuSans-Bold.ttf")):
        document.add_font("DejaVu", style, _fonts() / name)
    document.add_page()
    waiting = iter(images)
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.kind in HEADINGS:
            _keep_together(document, following)
        _write(document, block, waiting)
    return bytes(document.output())


def _fonts() -> Path:
    """Return the folder of the fonts that matplotlib brings: they have every character of a report."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def _keep_together(document: Any, following: PageBlock | None) -> None:
    """Begin a page where a heading would be left alone at the end of one."""
    is_figure = following is not None and following.kind == "figure"
    if document.will_page_break(IMAGE_MM if is_figure else HEADING_MM):
        document.add_page()


def _write(document: Any, block: PageBlock, images: Any) -> None:
    if block.kind in HEADINGS:
        document.set_font("DejaVu", "B", HEADINGS[block.kind])
        document.ln(LINE / 2)
        _line(document, block.text, HEADINGS[block.kind] * 0.5)
    elif block.kind == "table":
        _table(document, block)
    elif block.kind == "figure":
        image = next(images, None)
        if image is not None:
            document.image(image, w=IMAGE_MM)
    else:
        document.set_font("DejaVu", "B" if block.kind == "strong" else "", SIZE)
        _line(document, f"• {block.text}" if block.kind == "li" else block.text, LINE)
    document.ln(LINE / 4)


def _line(document: Any, text: str, height: float) -> None:
    document.multi_cell(0, height, text, align="L", new_x="LMARGIN", new_y="NEXT")


def _table(document: Any, block: PageBlock) -> None:
    """Write a table; the first column is wider, because it has the names."""
    width = max(map(len, block.rows), default=0)
    if not width:
        return
    document.set_font("DejaVu", "", SIZE - 1.5)
    with document.table(
        line_height=LINE,
        first_row_as_headings=block.has_head,
        borders_layout="HORIZONTAL_LINES",
        col_widths=(2, 3) if width == 2 else (3, *(2 for _ in range(width - 1))),
        text_align="LEFT",
    ) as table:
        for row in block.rows:
            table.row([*row, *[""] * (width - len(row))])
