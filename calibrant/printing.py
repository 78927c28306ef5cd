"""Tables as text and as HTML, for results that print."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Rows = Sequence[Sequence[str]]
STYLE = (
    "table.calibrant{border-collapse:collapse;font-size:13px}"
    "table.calibrant caption{text-align:left;padding:0 0 6px;white-space:pre}"
    "table.calibrant th,table.calibrant td{padding:3px 12px 3px 0;text-align:right;border-bottom:1px solid #e4e4e4;"
    "white-space:nowrap}"
    "table.calibrant th:first-child,table.calibrant td:first-child{text-align:left}"
)


def text_table(header: Sequence[str], rows: Rows, caption: str = "") -> str:
    """Return an aligned table; the first column is flush left, the others flush right.

    Examples
    --------
    >>> print(text_table(("metric", "value"), [("ece", "0.1250"), ("brier", "0.5")]))
    metric   value
    ece     0.1250
    brier      0.5
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in (header, *rows)
    ]
    return "\n".join([*([caption] if caption else []), *(line.rstrip() for line in lines)])


def html_table(header: Sequence[str], rows: Rows, caption: str = "") -> str:
    """Return the table as HTML, with its style."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    caption_tag = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<style>{STYLE}</style><table class="calibrant">{caption_tag}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
