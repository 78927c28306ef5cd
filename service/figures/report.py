"""The report of a model as a page and as PDF. PDF files are written one at a time: reportlab's fonts are shared by all of them."""

from datetime import UTC, datetime

from calibrant.quality_report import ReportContents, page
from calibrant.quality_report.pdf import pdf
from calibrant_server.service.figures.base import RENDERING


def draw_report(contents: ReportContents) -> str:
    """Return the page."""
    return page(contents)


def report_files(contents: ReportContents) -> tuple[bytes, bytes]:
    """Return the page, and the same as PDF."""
    written = draw_report(contents)
    with RENDERING:
        document = pdf(written, contents.title, datetime.now(UTC))
    return written.encode(), document
