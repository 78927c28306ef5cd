"""The documentation site at /help."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrant_server.service.pages import rendering
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the site, empty at first."""
    folder = tmp_path / "site"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("not part of the site")
    monkeypatch.setattr(rendering, "PLACES", (tmp_path / "none", folder))
    rendering.help_files.cache_clear()
    yield folder
    rendering.help_files.cache_clear()


async def test_pages_and_files_are_served(client, site):
    (site / "tutorials").mkdir()
    (site / "index.html").write_text("<title>Calibrant</title>")
    (site / "tutorials" / "platform.html").write_text("<p>first</p>")
    (site / "style.css").write_text("p {}")
    led = await client.get("/help")
    assert (led.status_code, led.headers["location"]) == (307, "/help/index.html")
    for path, media_type, text in (
        ("/help/", "text/html", "<title>Calibrant"),
        ("/help/tutorials/platform.html", "text/html", "first"),
        ("/help/style.css", "text/css", "p {}"),
    ):
        found = await client.get(path)
        assert found.status_code == 200 and text in found.text
        assert found.headers["content-type"].startswith(media_type)
        assert "default-src 'none'" in found.headers["content-security-policy"]


async def test_only_files_of_the_site_are_read(client, site):
    (site / "index.html").write_text("<p>")
    (site / "404.html").write_text("<p>expects the site at the root")
    for path in (
        "/help/404.html",
        "/help/../secret.txt",
        "/help/%2e%2e/secret.txt",
        "/help//etc/passwd",
        "/help/no",
    ):
        problem(await client.get(path), 404, "path-unknown")


def test_a_clone_has_the_site_where_make_docs_builds_it():
    root = Path(__file__).parents[2]
    assert (root / "service" / "help", root / "build" / "docs-site") == rendering.PLACES


async def test_an_installation_without_the_site_says_how_to_get_it(client, site):
    found = problem(await client.get("/help/index.html"), 404, "path-unknown")
    assert "make docs" in found["detail"]
    assert "/help" not in (await client.get("/")).text
    shown = await client.get("/help/index.html", headers={"Accept": "text/html"})
    assert shown.status_code == 404 and "<code>make docs</code>" in shown.text
    (site / "index.html").write_text("<p>")
    rendering.help_files.cache_clear()
    assert 'href="/help/"' in (await client.get("/")).text
