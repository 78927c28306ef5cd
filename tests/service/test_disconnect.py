"""A client that leaves while it sends is its own affair: no error of ours in log or metrics."""

import logging

import pytest

pytestmark = pytest.mark.anyio


async def test_a_client_that_leaves_is_no_error_of_ours(app, client, caplog):
    messages = iter([
        {"type": "http.request", "body": b'{"probabilities": [[0.5', "more_body": True},
        {"type": "http.disconnect"},
    ])  # fmt: skip
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/models/m/predictions", "raw_path": b"/v1/models/m/predictions", "query_string": b"",
        "root_path": "", "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "app": app,
    }  # fmt: skip
    sent = []

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    with caplog.at_level(logging.INFO):
        await app(scope, receive, send)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    text = (await client.get("/metrics")).text
    assert 'calibrant_requests_total{operation="ingestPredictions",status="499"} 1.0' in text
    assert 'status="500"' not in text
