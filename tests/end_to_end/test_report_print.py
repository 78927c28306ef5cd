"""A report on paper: what Chromium prints of the page has every section, page numbers, and nothing that a page break cuts."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

import calibrant as cal
from tests.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
pypdf = pytest.importorskip("pypdf")


@pytest.fixture(scope="module")
def page() -> str:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), 3000)
    labels = [rng.choice(3, 2, p=row).tolist() for row in p]
    return str(cal.evaluate(p, labels).to_html())


@pytest.fixture(scope="module")
def printed(page: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the text of each printed page."""
    folder = tmp_path_factory.mktemp("print")
    (folder / "report.html").write_text(page)
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--no-pdf-header-footer",
        f"--print-to-pdf={folder / 'report.pdf'}", (folder / "report.html").as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    return [each.extract_text() for each in pypdf.PdfReader(folder / "report.pdf").pages]


def headings(page: str) -> list[str]:
    return [
        re.sub(r"<[^>]+>", "", each).strip()
        for each in re.findall(r"<h2>(.*?)</h2>", page, re.DOTALL)
    ]


def test_every_section_is_printed(page: str, printed: list[str]) -> None:
    text = " ".join(" ".join(printed).split())
    assert "Calibration report" in text and "Not a medical device." in text
    assert len(headings(page)) >= 4
    for each in headings(page):
        assert each in text


def test_pages_are_numbered(printed: list[str]) -> None:
    assert len(printed) >= 2
    for number, text in enumerate(printed, 1):
        assert f"{number} / {len(printed)}" in text


def test_no_heading_is_the_last_line_of_a_page(page: str, printed: list[str]) -> None:
    found = headings(page)
    for text in printed:
        lines = [each.strip() for each in text.splitlines() if each.strip()]
        last = [each for each in lines if not re.fullmatch(r"\d+ / \d+", each)][-1]
        assert last not in found


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)
