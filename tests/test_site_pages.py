"""The pages of the documentation site: complete, and with links that stay in the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import calibrant
from calibrant.metrics import METRICS
from calibrant_server.service.http.problems import PROBLEMS
from scripts.site_pages import main, within_the_site

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    main(folder)
    return folder


def test_the_reference_has_every_metric_error_and_public_name(site: Path) -> None:
    metrics = (site / "reference" / "metrics.md").read_text()
    for slug, metric in METRICS.items():
        assert f"## {metric.title}\n\n`{slug}`" in metrics and metric.formula in metrics
    errors = (site / "reference" / "errors.md").read_text()
    assert all(f"| `{slug}` |" in errors for slug in PROBLEMS)
    settings = (site / "reference" / "settings.md").read_text()
    assert all(f"| `{name}`" in settings for name in ("CALIBRANT_PORT", "CALIBRANT_MODE"))
    library = (site / "reference" / "library.md").read_text()
    functions = {*METRICS, "METRICS", "__version__"}
    assert all(f".{name}\n" in library for name in set(calibrant.__all__) - functions)  # type: ignore[attr-defined]


def test_the_navigation_has_every_page(site: Path) -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [page for section in navigation for pages in section.values() for page in pages]
    assert sorted(listed) == sorted(str(page.relative_to(site)) for page in site.rglob("*.md"))


def test_links_stay_in_the_site(site: Path) -> None:
    for page in site.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            found = (page.parent / target).resolve()
            assert found.is_relative_to(site) and found.exists(), (page.name, target)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](../README.md#x) [b](../../LICENSE)", "[a](../index.md#x) b"),
        ("[a](#here) [c](../drift.md)", "[a](#here) [c](../drift.md)"),
        ("```\n[b](../../LICENSE)\n```", "```\n[b](../../LICENSE)\n```"),
    ],
)
def test_links_that_leave_become_text(text: str, expected: str) -> None:
    assert within_the_site(text, Path("tutorials/platform.md")) == expected
