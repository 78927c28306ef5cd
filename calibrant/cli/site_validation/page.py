"""The page with the results, and its reading: the contents are embedded, so that the page can be verified."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from calibrant.cli.site_validation.signature import Signature

TITLES = {
    "installation": "Installation",
    "operation": "Operation",
    "performance": "Performance",
}
_EMBEDDED = re.compile(r'<script type="application/json" id="validation">(.*?)</script>', re.DOTALL)


class PageError(ValueError):
    """A file is no page of a validation."""


def html(content: dict[str, Any], signature: Signature) -> str:
    """Return the page; the same contents and signature give the same bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("calibrant.cli.site_validation", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The order of the contents that are read from a page.
    content = json.loads(json.dumps(content, sort_keys=True))
    style = files("calibrant.quality_report").joinpath("style.css").read_text("utf-8")
    parts = {
        title: [each for each in content["results"] if each["part"] == part]
        for part, title in TITLES.items()
    }
    return environment.get_template("page.html").render(
        content=content,
        signature=signature,
        counts=Counter(each["verdict"] for each in content["results"]),
        parts=parts,
        style=Markup(style),
        embedded=Markup(document(content, signature).replace("<", "\\u003c")),
    )


def document(content: dict[str, Any], signature: Signature) -> str:
    """Return contents and signature as JSON."""
    return json.dumps(
        {"content": content, "signature": asdict(signature)}, indent=1, sort_keys=True
    )


def read(path: Path) -> tuple[dict[str, Any], Signature, str | None]:
    """Return contents and signature of a page or of its JSON, and the page as text; None for JSON.

    Raises
    ------
    PageError
        The file cannot be read, or is neither.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PageError(f"{path} cannot be read: {error}.") from error
    embedded = _EMBEDDED.search(text)
    try:
        found = json.loads(embedded[1] if embedded else text)
        signature = Signature(**found["signature"])
        return found["content"], signature, text if embedded else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PageError(f"{path} is no page or JSON of `calibrant validate`.") from error
