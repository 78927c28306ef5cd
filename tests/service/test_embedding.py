"""Responses in a browser: figures with their styles and texts, and pages of other sites that may read them."""

import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import matplotlib.image
import numpy as np
import pytest
from pydantic import ValidationError

from calibrant.figures.images import image
from calibrant.figures.reliability import draw_reliability
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.middleware import SVG, SecurityHeaders
from calibrant_server.service.settings import Settings
from tests.service.conftest import client_of
from tests.service.figure_marks import Figure
from tests.service.test_diagrams import ANSWER

pytestmark = pytest.mark.anyio
PAGE, OTHER = "https://dashboard.example:8443", "https://other.example"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
async def embedded(tmp_path, inbox, registry):
    settings = Settings(data_dir=tmp_path, allowed_origins=(PAGE,), log_requests=False)
    async with client_of(create_app(settings, Connection(inbox, registry))) as client:
        yield client


def policy_of(headers: list[tuple[bytes, bytes]]) -> str:
    return dict(headers)[b"content-security-policy"].decode()


def test_only_figures_and_reports_may_have_styles():
    added_to = SecurityHeaders().added_to
    figure = policy_of(added_to([(b"Content-Type", b"image/svg+xml; charset=utf-8")]))
    assert figure == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    assert policy_of(added_to([(b"content-type", b"text/html; charset=utf-8")])) == figure
    for other in (b"application/json", b"image/png", b"text/plain"):
        plain = policy_of(added_to([(b"content-type", other)]))
        assert plain == "default-src 'none'; frame-ancestors 'none'"
    own = [(b"content-type", SVG), (b"content-security-policy", b"sandbox")]
    assert policy_of(added_to(own)) == "sandbox"


def test_text_of_a_figure_is_text():
    figure = Figure.of(image(draw_reliability(ANSWER)))
    assert any("digits" in text for text in figure.texts)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_browser_shows_a_figure_in_its_colours(tmp_path):
    drawn = image(draw_reliability(ANSWER))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            for name, value in SecurityHeaders().added_to([(b"content-type", SVG)]):
                self.send_header(name.decode(), value.decode())
            self.end_headers()
            self.wfile.write(drawn)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        picture = tmp_path / "picture.png"
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=700,700")
        files = (f"--screenshot={picture}", f"--user-data-dir={tmp_path / 'profile'}")
        url = f"http://127.0.0.1:{server.server_port}/"
        subprocess.run(
            [CHROMIUM, *flags, *files, url], check=True, capture_output=True, timeout=300
        )
    finally:
        server.shutdown()
        server.server_close()
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert (pixels.max(axis=2) < 0.2).mean() < 0.1
    assert (pixels.min(axis=2) > 0.9).mean() > 0.5
    blue = np.array([0x00, 0x72, 0xB2]) / 255
    assert (np.abs(pixels - blue).max(axis=2) < 0.05).any()


async def test_an_allowed_page_may_read_and_embed(embedded):
    wanted = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    read = await embedded.get("/v1/models", headers=wanted)
    assert read.status_code == 200
    assert read.headers["access-control-allow-origin"] == PAGE
    assert "ETag" in read.headers["access-control-expose-headers"]
    assert "Origin" in read.headers["vary"]
    assert read.headers["cross-origin-resource-policy"] == "cross-origin"
    assert f"frame-ancestors {PAGE}" in read.headers["content-security-policy"]
    asked = {
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "authorization,if-match,content-type",
    }
    allowed = await embedded.options("/v1/models/m", headers=wanted | asked)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == PAGE


async def test_other_pages_may_not(embedded, client):
    headers = {"Origin": OTHER, "Sec-Fetch-Site": "cross-site"}
    for each in (embedded, client):
        answer = await each.get("/v1/models", headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    plain = await client.get("/v1/models", headers={"Origin": PAGE})
    assert "access-control-allow-origin" not in plain.headers
    assert plain.headers["cross-origin-resource-policy"] == "same-origin"


def test_origins_are_read_from_a_list_with_commas(monkeypatch):
    monkeypatch.setenv("CALIBRANT_ALLOWED_ORIGINS", f"{PAGE}, http://localhost:3000")
    assert Settings().allowed_origins == (PAGE, "http://localhost:3000")
    for wrong in ("*", "https://a.example/path", "a.example", "https://a; script-src *"):
        monkeypatch.setenv("CALIBRANT_ALLOWED_ORIGINS", wrong)
        with pytest.raises(ValidationError, match="expected origins"):
            Settings()
