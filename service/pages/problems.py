"""The pages of problems."""

from collections.abc import Iterable
from html import escape

from calibrant_server.service.http.problem import Problem

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""


def problem_page(kind: type[Problem]) -> str:
    """Return the page of one problem."""
    content = (
        f"<h1>{escape(kind.title)}</h1>\n<p>HTTP status {kind.status}</p>\n"
        f"<p>{escape(kind.message())}</p>\n"
        '<p><a href="/v1/problems">All problems</a> · <a href="/docs">API</a></p>'
    )
    return FRAME.format(title=f"{kind.status} {escape(kind.title)}", content=content)


def problems_page(kinds: Iterable[type[Problem]]) -> str:
    """Return the list of problems."""
    items = "\n".join(
        f'<li><a href="/v1/problems/{kind.slug}">{kind.status} {escape(kind.title)}</a>: '
        f"{escape(kind.message())}</li>"
        for kind in kinds
    )
    return FRAME.format(title="Problems", content=f"<h1>Problems</h1>\n<ul>\n{items}\n</ul>")
