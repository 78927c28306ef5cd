"""Write the pages of the documentation site: those of docs/, and the reference from the code. Called by `make docs`.

Links to files outside docs/ become the name of the file: the site does not contain them.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import calibrant
from calibrant.results.catalogue import catalogue
from calibrant_server.service.http.problems import PROBLEMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^):\s]+)\)")
METHODS = ("get", "put", "post", "patch", "delete")


def main(folder: Path) -> None:
    """Write everything into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    (folder / "README.md").rename(folder / "index.md")
    for page in folder.rglob("*.md"):
        page.write_text(within_the_site(page.read_text(), page.relative_to(folder)))
    for notebook in sorted(folder.rglob("*.ipynb")):
        notebook.with_suffix(".md").write_text(notebook_page(json.loads(notebook.read_text())))
        notebook.unlink()
    reference = folder / "reference"
    reference.mkdir()
    for name, text in {
        "metrics": metrics_page(),
        "library": library_page(),
        "operations": operations_page(),
        "errors": errors_page(),
        "settings": settings_page(),
    }.items():
        (reference / f"{name}.md").write_text(text)


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page: its texts, its code and the stored outputs."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += map(_output, cell["outputs"])
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/png" in data:
        image = "".join(data["image/png"]).replace("\n", "")
        return f"![Figure of the cell above](data:image/png;base64,{image})"
    return f"```text\n{''.join(data['text/plain'])}\n```"


def within_the_site(text: str, page: Path) -> str:
    """Replace links that leave docs/ by their text, and those to its README by the first page."""

    def replaced(link: re.Match[str]) -> str:
        label, target = link[1], link[2]
        path, _, anchor = target.partition("#")
        if not path:
            return link[0]
        found = (DOCS / page.parent / path).resolve()
        if not found.is_relative_to(DOCS):
            return label
        if found == DOCS / "README.md":
            path = path.removesuffix("README.md") + "index.md"
        elif found.suffix == ".ipynb":
            path = path.removesuffix(".ipynb") + ".md"
        return f"[{label}]({path}{'#' + anchor if anchor else ''})"

    # Code is left as it is.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(each if each.startswith("```") else LINK.sub(replaced, each) for each in parts)


def metrics_page() -> str:
    """Return the catalogue of metrics."""
    lines = ["# Metrics", "", "What `METRICS` declares. `GET /v1/metrics` returns the same.", ""]
    for each in catalogue().to_dict()["metrics"]:
        slug, options = each["slug"], each["options"]
        assert isinstance(options, list)
        lines += [
            f"## {each['title']}",
            "",
            f"`{slug}`, in Python `cal.{slug}(probabilities, labels)`, in the API `metrics={slug}`.",
            "",
            f"- Formula: `{each['formula']}`",
            f"- Source: {each['source']}",
            f"- Unit: {each['unit']}; better: {each['direction']}; {each['exactness']} from the state",
            *(f"- Needs {need}" for need in _texts(each["requires"])),
            "",
        ]
        if options:
            lines += ["| Option | Default | Meaning |", "|---|---|---|"]
            lines += [
                f"| `{o['name']}` | {_cell(o['default'])} | {_cell(o['description'])} |"
                for o in options
            ]
            lines += [
                "",
                f"Example: `metrics={slug}({options[0]['name']}={options[0]['default']})`",
                "",
            ]
    return "\n".join(lines) + "\n"


def library_page() -> str:
    """Return the page that mkdocstrings fills from the docstrings of the public classes and functions."""
    places: dict[str, str] = vars(calibrant)["_PLACES"]
    lines = [
        "# Classes and functions",
        "",
        "Functions of single metrics are in [Metrics](metrics.md).",
        "",
    ]
    for name, place in sorted(places.items()):
        if name != "METRICS":
            lines += [f"::: calibrant.{place}.{name}", ""]
    return "\n".join(lines)


def operations_page() -> str:
    """Return the operations of the API by path."""
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    lines = ["# Operations of the API", ""]
    lines += ["`/docs` of a running service describes fields and examples.", ""]
    lines += ["| Request | Effect | Scopes |", "|---|---|---|"]
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                found: dict[str, Any] = operations[method]
                scopes = ", ".join(found["x-scopes"]) or "none"
                lines.append(
                    f"| `{method.upper()} {path}` | {_cell(found['summary'])} | {scopes} |"
                )
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """Return every problem that the service reports."""
    kinds = sorted(PROBLEMS.values(), key=lambda kind: (kind.status, kind.slug))
    lines = ["# Errors", "", "The member `type` of an error ends with its slug.", ""]
    lines += ["| Status | Slug | Meaning |", "|---|---|---|"]
    lines += [
        f"| {kind.status} | `{kind.slug}` | {_cell(' '.join((kind.__doc__ or '').split()))} |"
        for kind in kinds
    ]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Return the settings by name: rows of the table in docs/operations.md."""
    section = (DOCS / "operations.md").read_text().split("## Settings\n")[1].split("\n## ")[0]
    rows = sorted(line for line in section.splitlines() if line.startswith("| `CALIBRANT_"))
    lines = [
        "# Settings",
        "",
        "By name. [Operation](../operations.md#settings) has them by subject.",
        "",
    ]
    lines += ["| Variable | Default | Who | Meaning |", "|---|---|---|---|"]
    for row in rows:
        row = re.sub(r"\]\(#", "](../operations.md#", row)
        lines.append(re.sub(r"\]\(([a-z]+\.md)", r"](../\1", row))
    return "\n".join(lines) + "\n"


def _texts(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
