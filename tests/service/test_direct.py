"""Batches that are taken before the router: the same in every respect as those that are routed."""

import gzip
import json
import logging

import orjson
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.reads.direct import DirectRoutes
from tests.service.conftest import PREDICTIONS, client_of
from tests.service.fakes import FakeInbox, FakeRegistry

pytestmark = pytest.mark.anyio
M = "/v1/models/digits"
LABELS = {"ids": ["i1"], "labels": [[1]]}
HISTOGRAM = {
    "kind": "top_label", "bins": 4, "count": [1, 0, 0, 0], "sum_confidence": [0.1, 0, 0, 0], "sum_correct": [1, 0, 0, 0],
}  # fmt: skip
JSON = {"Content-Type": "application/json"}
CASES = {
    "a batch": ("predictions", orjson.dumps(PREDICTIONS), {}),
    "named": ("predictions", orjson.dumps(PREDICTIONS), {"Idempotency-Key": "b1"}),
    "waiting": ("predictions", orjson.dumps(PREDICTIONS), {"Prefer": "wait=0"}),
    "coded": ("predictions", gzip.compress(orjson.dumps(PREDICTIONS)), {"Content-Encoding": "gzip"}),
    "no json": ("predictions", b"{", {}),
    "another type": ("predictions", b"{}", {"Content-Type": "text/plain"}),
    "a bad row": ("predictions", orjson.dumps({"probabilities": [[2, 0]], "labels": [0]}), {}),
    "two names": ("predictions", orjson.dumps({**PREDICTIONS, "batch_id": "x"}), {"Idempotency-Key": "y"}),
    "labels": ("labels", orjson.dumps(LABELS), {}),
    "bad labels": ("labels", orjson.dumps({**LABELS, "labels": [[7]]}), {}),
    "a histogram": ("histograms", orjson.dumps(HISTOGRAM), {}),
    "a bad histogram": ("histograms", orjson.dumps({**HISTOGRAM, "bins": 5}), {}),
}  # fmt: skip
CHANGING = ("batch_id", "request_id")


async def exchanged(settings, caplog, name: str, query: str):
    """Send a case to a new service; return its response, log line and metrics."""
    path, body, headers = CASES[name]
    registry = FakeRegistry()
    inbox = FakeInbox(registry)
    app = create_app(
        settings.model_copy(update={"log_requests": True}), Connection(inbox, registry)
    )
    async with client_of(app) as client:
        await client.put(M, json={"task": "multiclass", "classes": 3, "grid": 4})
        caplog.clear()
        with caplog.at_level(logging.INFO, "service.access"):
            response = await client.post(f"{M}/{path}{query}", content=body, headers=JSON | headers)
    [line] = [vars(each) for each in caplog.records if each.message == "request"]
    found = {name: line[name] for name in ("operation", "model", "tenant", "status", "path")}
    found |= {name: line[name] for name in ("request_bytes", "method", "key", "client")}
    metrics = app.state.metrics
    sample = metrics.requests.labels(line["operation"], str(response.status_code))._value.get()
    document = {k: v for k, v in response.json().items() if k not in CHANGING}
    document.pop("batch_id", None)
    names = sorted(response.headers)
    payloads = [(each.kind, each.payload, each.digest) for each in inbox.deliveries]
    return response.status_code, json.dumps(document), names, found, sample, payloads


@pytest.mark.parametrize("name", CASES)
async def test_a_batch_is_the_same_with_and_without_the_router(settings, caplog, name):
    caplog.set_level(logging.INFO, "service.access")
    directly = await exchanged(settings, caplog, name, "")
    routed = await exchanged(settings, caplog, name, "?partial=false")
    assert directly == routed


@pytest.mark.parametrize(
    ("method", "path", "query", "name"),
    [
        ("POST", f"{M}/predictions", b"", "ingestPredictions"),
        ("POST", f"{M}/labels", b"", "ingestLabels"),
        ("POST", f"{M}/histograms", b"", "ingestHistograms"),
        ("POST", f"{M}/predictions", b"partial=true", None),
        ("GET", f"{M}/predictions", b"", None),
        ("POST", "/v1/models/a b/predictions", b"", None),
        ("POST", "/v1/models/../predictions", b"", None),
        ("POST", f"{M}/predictions/", b"", None),
        ("POST", f"{M}/jobs", b"", None),
        ("POST", "/v1/score", b"", None),
    ],
)
def test_what_is_taken_before_the_router(app, method, path, query, name):
    scope = {"method": method, "path": path, "query_string": query}
    found = DirectRoutes(app.state.routes).find(scope)
    assert (found is None) == (name is None)
    if name is not None:
        assert scope["route"].operation_id == name and scope["path_params"] == {"model": "digits"}
