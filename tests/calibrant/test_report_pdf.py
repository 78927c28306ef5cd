"""The report as PDF: every word of the page, its figures, and the same bytes for the same page."""

from __future__ import annotations

import re
import sys
from collections import Counter
from datetime import UTC, datetime
from html import unescape
from io import BytesIO
from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
from pypdf import PageObject, PdfReader
from pypdf.generic import ContentStream

import calibrant as cal
from calibrant.quality_report import LeftOut, ReportContents, Subgroup, page, pdf_document
from calibrant.quality_report.figures import figures
from calibrant.quality_report.pdf import blocks_of, pdf, wrapped
from calibrant.quality_report.pdf_document import PdfDocument


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200)
    pane = cal.Pane.fill(p, [int(rng.choice(3, p=row)) for row in p])
    report = pane.evaluate().to_dict()
    return ReportContents(
        title="Calibration of <triage> – μ ≤ τ",
        metrics=report,
        subject=[("Model", "triage & more")],
        generated_at="2026-11-23T00:00:00Z",
        reliability=pane.reliability().to_dict(),
        temperature=pane.temperature().to_dict(),
        tolerance=0.05,
        left_out=[LeftOut("predictions without a label", 3, "no label has arrived.")],
        subgroups=[Subgroup("site:A", report)],
        versions=[("Pane", pane.digest())],
    )


def words(html: str) -> list[str]:
    text = re.sub(r"<(style|svg|head)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", " ", text)).split()


def test_its_blocks_have_every_word_of_the_page(contents: ReportContents) -> None:
    html = page(contents)
    blocks = blocks_of(html)
    found = [
        word
        for block in blocks
        for text in (block.text, *chain.from_iterable(block.rows))
        for word in text.split()
    ]
    assert found == words(html)
    assert [block.kind for block in blocks].count("figure") == len(figures(contents)) == 3
    (table,) = [block for block in blocks if block.has_head and block.rows[0][0] == "Metric"]
    assert len({len(row) for row in table.rows}) == 1


def test_the_same_page_gives_the_same_bytes(contents: ReportContents) -> None:
    html = page(contents)
    first = pdf(html, contents.title)
    assert first.startswith(b"%PDF-") and first == pdf(html, contents.title)
    assert first != pdf(html, contents.title, datetime(2026, 11, 23, tzinfo=UTC))


def test_it_has_every_word_and_each_figure_of_the_page(contents: ReportContents) -> None:
    html = page(contents)
    read = read_pdf(pdf(html, contents.title))
    blocks = blocks_of(html)
    missing = [word for word in words(html) if word not in read.text]
    # Lines of a table's cells alternate, so a long word of one may be divided.
    assert all(len(word) > 20 for word in missing), missing
    labels = [each.text for block in blocks for each in block.elements if each.tag == "text"]
    assert len(labels) > 20 and all("".join(each.split()) in read.text for each in labels)
    n_marks = sum(each.tag in ("circle", "polyline") for block in blocks for each in block.elements)
    assert n_marks and read.n_curves + read.n_lines >= n_marks


def test_it_opens_with_its_title_and_date(contents: ReportContents) -> None:
    written_at = datetime(2026, 11, 23, 4, 5, 6, tzinfo=UTC)
    about = PdfReader(BytesIO(pdf(page(contents), contents.title, written_at))).metadata
    assert about is not None
    assert (about.title, about.creation_date) == (contents.title, written_at)


def test_a_heading_is_not_left_alone_at_the_end_of_a_page() -> None:
    lines = "".join(f"<p>line {i}</p>" for i in range(45))
    svg = '<svg viewBox="0 0 100 100"><text x="1" y="9" font-size="9">drawn</text></svg>'
    pages = read_pdf(pdf(f"{lines}<h2>5. Figures</h2><h3>Reliability</h3>{svg}", "t")).pages
    assert ["5.Figures" in each for each in pages] == ["drawn" in each for each in pages]
    assert len(pages) == 2 and "5.Figures" in pages[1]


def test_characters_without_a_glyph_and_long_words_stay_on_the_page() -> None:
    data = pdf(f"<h1>{'W' * 300} \U0001f9ec \u4e2d</h1><p>Ünïcode ≤ μ</p>", "t")
    assert "Ünïcode≤μ" in read_pdf(data).text
    document = PdfDocument("t", 10.0, datetime(2026, 11, 23, tzinfo=UTC))
    assert all(
        document.width(line, 17.0, True) <= 100.0
        for line in wrapped(document, "W" * 300, 17.0, 100.0, True)
    )


def test_it_has_only_the_characters_that_are_used() -> None:
    assert len(pdf("<p>Aé</p>", "t")) < 30_000


@pytest.mark.parametrize("package", ["matplotlib", "reportlab"])
def test_without_the_extra_the_error_names_it(
    contents: ReportContents, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    pdf_document.register_fonts.cache_clear()
    if package == "matplotlib":
        monkeypatch.setattr(pdf_document, "find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, "reportlab.pdfgen.canvas", None)
    with pytest.raises(ImportError, match=rf"{package}.* pip install 'calibrant\[pdf\]'"):
        pdf(page(contents), contents.title)


class ReadPdf(NamedTuple):
    """What a PDF shows: the text of each page without spaces, and how many curves and lines it draws."""

    pages: list[str]
    n_curves: int
    n_lines: int

    @property
    def text(self) -> str:
        return "".join(self.pages)


def contents_of(page: PageObject) -> ContentStream:
    found = page.get_contents()
    assert found is not None
    return found


def read_pdf(data: bytes) -> ReadPdf:
    """Return what a reader of PDF files finds."""
    pages = PdfReader(BytesIO(data)).pages
    drawn = Counter(operator for each in pages for _, operator in contents_of(each).operations)
    return ReadPdf(
        ["".join(each.extract_text().split()) for each in pages], drawn[b"c"], drawn[b"l"]
    )
