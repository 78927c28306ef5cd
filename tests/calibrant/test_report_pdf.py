"""The report as PDF: every word of the page, its figures, and the same bytes for the same page."""

from __future__ import annotations

import re
import sys
from html import unescape
from itertools import chain

import numpy as np
import pytest

import calibrant as cal
from calibrant.quality_report import LeftOut, ReportContents, Subgroup, page
from calibrant.quality_report.figures import figures
from calibrant.quality_report.pdf import blocks_of, pdf


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
    html, images = page(contents), [each.png for each in figures(contents)]
    assert all(image.startswith(b"\x89PNG") for image in images)
    first = pdf(html, images, contents.title)
    assert first.startswith(b"%PDF-") and first == pdf(html, images, contents.title)
    assert first.count(b"/Subtype /Image") >= 3
    without = pdf(html, [], contents.title)
    assert without.count(b"/Subtype /Image") == 0 and len(without) < len(first)


def test_without_the_extra_the_error_names_it(
    contents: ReportContents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fpdf", None)
    with pytest.raises(ImportError, match=r"pip install 'calibrant\[pdf\]'"):
        pdf(page(contents), [], contents.title)
