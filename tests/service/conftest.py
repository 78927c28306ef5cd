"""The app around an engine in memory, and a client for it."""

from collections.abc import AsyncIterator

import httpx
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.reads import observation, service
from calibrant_server.service.routes import alarms
from calibrant_server.service.settings import Settings
from tests.conforming import CONFORMING
from tests.service.fakes import FakeInbox, FakeRegistry

PREDICTIONS = {
    "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
    "labels": [0, [1, 1, 2]],
}


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch):
    monkeypatch.setattr(service, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(observation, "RECENT_S", 0.0)
    monkeypatch.setattr(alarms, "LOOK_INTERVAL_S", 0.01)


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(data_dir=tmp_path, log_requests=False)


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def inbox(registry) -> FakeInbox:
    return FakeInbox(registry)


@pytest.fixture
def app(settings, inbox, registry):
    app = create_app(settings, Connection(inbox, registry))
    app.openapi_schema = CONFORMING.document
    return app


def client_of(app, **options) -> httpx.AsyncClient:
    """A client that fails where an answer does not stand in the API document."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    hooks = {"response": [_stands_in_the_document]}
    return httpx.AsyncClient(
        transport=transport, base_url="http://localhost", event_hooks=hooks, **options
    )


async def _stands_in_the_document(response: httpx.Response) -> None:
    if "event-stream" not in response.headers.get("content-type", ""):
        await response.aread()
        # Answers of the engine in memory are not whole; the tests of the whole look at their shapes.
        CONFORMING.check(response, shapes="etag" not in response.headers)


@pytest.fixture
async def client(app) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as each:
        yield each


def problem(response: httpx.Response, status: int, slug: str) -> dict:
    """Check that `response` is that problem, whole, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    members = {"type", "title", "status", "detail", "instance", "errors", "request_id", "retryable"}
    assert set(body) == members
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["retryable"] is (status in (429, 503))
    assert (body["type"], body["status"]) == (f"/v1/problems/{slug}", status)
    assert body["detail"] and body["title"]
    for error in body["errors"]:
        assert set(error) == {"pointer", "rule", "detail"}
    return body
