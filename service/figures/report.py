"""The report of a model as a page and as PDF. The figures of a PDF are matplotlib's, which are drawn one at a time."""

from datetime import UTC, datetime

from calibrant.quality_report import ReportContents, page
from calibrant.quality_report.figures import figures
from calibrant.quality_report.pdf import pdf, writes_pdf
from calibrant_server.service.figures.base import RENDERING


def draw_report(contents: ReportContents) -> str:
    """Return the page."""
    return page(contents)


def report_files(contents: ReportContents) -> tuple[bytes, bytes | None]:
    """Return the page, and the same as PDF; None without the extra that writes it."""
    written = draw_report(contents)
    if not writes_pdf():
        return written.encode(), None
    with RENDERING:
        images = [each.png for each in figures(contents)]
    return written.encode(), pdf(written, images, contents.title, datetime.now(UTC))
