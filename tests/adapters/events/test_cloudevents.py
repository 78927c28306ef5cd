"""Events made by the SDK `cloudevents`, through the app: structured and binary, compared with one direct post."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cloudevents.core", reason="cloudevents is installed by `make test-adapters`")

import httpx
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from calibrant.core.batch import Batch
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from tests.service.fakes import FakeInbox, FakeRegistry

PAGE = Path(__file__).parents[3] / "docs" / "adapters.md"
ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]
BODIES: dict[str, Any] = {
    "v1": {"predictions": ROWS},
    "v2": {
        "outputs": [
            {"name": "p", "datatype": "FP32", "shape": [2, 3], "data": [*ROWS[0], *ROWS[1]]}
        ]
    },
}


def event(data: Any, kind: str = "response") -> CloudEvent:
    attributes = {
        "id": "5f0c",
        "source": "http://localhost:9081/",
        "type": f"org.kubeflow.serving.inference.{kind}",
        "time": datetime(2026, 11, 20, 9, tzinfo=UTC),
        "namespace": "ml",
        "inferenceservicename": "iris",
        "component": "predictor",
        "metadata": json.dumps({"X-Patient": ["p4"]}),
    }
    return CloudEvent(attributes=attributes, data=data)


async def posted(tmp_path: Path, *messages: Any) -> tuple[list[dict], Batch]:
    """Post messages of the SDK; return the responses, and the only batch that came of them."""
    registry = FakeRegistry()
    inbox = FakeInbox(registry)
    app = create_app(Settings(data_dir=tmp_path, log_requests=False), Connection(inbox, registry))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        declared = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
        settings = {"classes": 3, **json.loads(declared[1])}
        assert (await client.put("/v1/models/ml.iris", json=settings)).status_code == 201
        found = []
        for each in messages:
            response = await client.post(
                "/v1/cloudevents", content=each.body, headers=dict(each.headers)
            )
            assert response.status_code == 200, response.text
            found.append(response.json())
    (delivery,) = inbox.deliveries
    return found, Batch.unpack(delivery.payload)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("write", [to_structured_event, to_binary_event])
@pytest.mark.parametrize("form", ["object", "bytes", "gzip"])
def test_events_of_the_sdk_become_predictions(tmp_path, body, write, form):
    data: Any = BODIES[body]
    if form != "object":
        data = json.dumps(data).encode()
    if form == "gzip":
        data = gzip.compress(data)
    message = write(event(data))
    found, batch = asyncio.run(posted(tmp_path, message, message))
    assert [each["batch"]["duplicate"] for each in found] == [False, True]
    np.testing.assert_allclose(batch.probabilities, ROWS)
    assert list(batch.ids) == ["5f0c:0", "5f0c:1"]
    assert batch.unit_source == "unit"
    assert set(batch.event_times.tolist()) == {1795165200000000}
