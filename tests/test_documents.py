"""Links between the documents lead somewhere, and the files and commands that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
]

# Not all folders of the clone: `data` and `dist` are made by commands.
FOLDERS = (
    "benchmarks",
    "calibrant",
    "demo",
    "deploy",
    "docs",
    "openapi",
    "requirements",
    "scripts",
    "service",
    "tests",
    "workers",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_named_paths_exist(page: Path) -> None:
    """The changelog is excluded: its entries name files of their time. A tutorial's reader makes its files."""
    named = re.findall(
        rf"`((?:{'|'.join(FOLDERS)})/[^`:\s]*|[\w.-]+\.(?:py|lua))`", page.read_text()
    )
    made = set(re.findall(r'^```python title="([\w.]+)"$', page.read_text(), re.MULTILINE))
    places = (ROOT, page.parent, ROOT / "calibrant")
    missing = [
        path
        for path in set(named) - made
        if "*" not in path and not any((place / path).exists() for place in places)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def test_changelog_says_each_thing_once() -> None:
    lines = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("### ")]
    assert sorted(said) == sorted(set(said))
    assert all(line.startswith(("- ", "  ", "#")) or lines.index(line) < 3 for line in lines)


def test_changelog_has_the_usual_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in text.split("\n## ")[1:]:
        headings = re.findall(r"^### (.*)$", version, re.MULTILINE)
        order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        assert headings == [each for each in order if each in headings] != []
        assert "\n- " not in version.split("\n### ")[0]
