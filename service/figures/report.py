"""The report of a model as a page and as PDF."""

from datetime import UTC, datetime

from calibrant.quality_report import ReportContents, page
from calibrant.quality_report.pdf import pdf


def draw_report(contents: ReportContents) -> str:
    """Return the page."""
    return page(contents)


def report_files(contents: ReportContents) -> tuple[bytes, bytes]:
    """Return the page, and the same as PDF."""
    written = draw_report(contents)
    return written.encode(), pdf(written, contents.title, datetime.now(UTC))
