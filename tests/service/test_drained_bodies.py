"""A rejected request is answered after its body was received, within bounds."""

import anyio
import pytest

from calibrant_server.service.http import middleware

pytestmark = pytest.mark.anyio
CHUNK = b"x" * 65_536


async def served(app, path, n_chunks, *, query=b"", headers=(), stalls=False):
    """Send a request in chunks; return the status, and how many chunks were received before the response began."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query, "root_path": "", "app": app,
        "headers": [(b"content-type", b"application/json"), *headers], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }  # fmt: skip
    received, at_start = [], []

    async def receive():
        if stalls and received:
            await anyio.sleep_forever()
        received.append(CHUNK)
        return {"type": "http.request", "body": CHUNK, "more_body": len(received) < n_chunks}

    async def send(message):
        if message["type"] == "http.response.start":
            at_start.append((message["status"], len(received)))

    await app(scope, receive, send)
    return at_start[0]


LENGTH = (b"content-length", b"1")


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/v1/models/m/predictions", b"partial=banana", 422),
        ("/v1/models/m/labels", b"nothing=1", 422),
        ("/v1/score", b"metrics=nope", 422),
        ("/v1/nothing", b"", 404),
    ],
)
async def test_a_refused_query_is_answered_after_the_body(app, path, query, status):
    assert await served(app, path, 12, query=query, headers=[LENGTH]) == (status, 12)


async def test_nothing_is_received_without_a_body_or_a_permission(app):
    for headers in ((), [LENGTH, (b"expect", b"100-continue")]):
        found = await served(app, "/v1/score", 12, query=b"metrics=nope", headers=headers)
        assert found == (422, 0)


async def test_the_rest_of_a_body_is_bounded_in_bytes_and_time(app, settings, monkeypatch):
    n = middleware.MAX_UNKNOWN_BYTES // len(CHUNK)
    status, received = await served(app, "/v1/nothing", 10_000, headers=[LENGTH])
    assert status == 404 and received <= n + 1
    monkeypatch.setattr(middleware, "DRAIN_S", 0.05)
    assert await served(app, "/v1/nothing", 12, headers=[LENGTH], stalls=True) == (404, 1)
