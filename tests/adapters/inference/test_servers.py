"""Bodies and events of KServe's SDK, and bodies of Triton's client, as the service and `decode` read them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("kserve", reason="KServe's SDK is installed by `make test-adapters`")
pytest.importorskip("tritonclient", reason="tritonclient is installed by `make test-adapters`")

import httpx
import tritonclient.http as triton
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent
from kserve import InferInput, InferOutput, InferRequest, InferResponse

from calibrant.contrib.open_inference import decode
from calibrant.core.batch import Batch
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from tests.adapters.examples import run_example
from tests.service.fakes import FakeInbox, FakeRegistry

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROWS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], np.float32)


def response(is_binary: bool) -> tuple[bytes, int | None]:
    """Return the body of KServe's own response, and the length of its JSON if tensors follow."""
    output = InferOutput("p", [2, 3], "FP32")
    output.set_data_from_numpy(ROWS, binary_data=is_binary)
    found = InferResponse("42", "iris", infer_outputs=[output], use_binary_outputs=is_binary)
    body, length = found.to_rest()
    return (body, length) if isinstance(body, bytes) else (json.dumps(body).encode(), None)


@pytest.mark.parametrize("is_binary", [False, True])
def test_bodies_of_kserve(is_binary):
    body, length = response(is_binary)
    assert (length is not None) == is_binary
    for given in (length, None):  # loggers do not forward the header with the length
        found = decode(body, given)
        np.testing.assert_array_equal(found.tensors["p"].astype(np.float32), ROWS)
        assert (found.id, found.model_name) == ("42", "iris")


@pytest.mark.parametrize("is_binary", [False, True])
def test_requests_of_kserve_and_of_tritonclient(is_binary):
    names = np.array(["p4", "pä"], dtype=object)
    made = triton.InferInput("patient", [2], "BYTES")
    made.set_data_from_numpy(names, binary_data=is_binary)
    scores = triton.InferInput("x", [2, 3], "FP32")
    scores.set_data_from_numpy(ROWS, binary_data=is_binary)
    body, length = triton.InferenceServerClient.generate_request_body([made, scores])
    body = body if isinstance(body, bytes) else body.encode()
    for given in (length, None):
        tensors = decode(body, given).tensors
        assert tensors["patient"].tolist() == ["p4", "pä"]
        np.testing.assert_array_equal(tensors["x"].astype(np.float32), ROWS)
    inputs = InferInput("x", [2, 3], "FP32")
    inputs.set_data_from_numpy(ROWS, binary_data=is_binary)
    body, _ = InferRequest("iris", [inputs]).to_rest()
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    np.testing.assert_array_equal(decode(body).tensors["x"].astype(np.float32), ROWS)


@pytest.mark.parametrize("dtype", ["FP16", "FP32", "FP64", "INT8", "INT64", "UINT16", "BOOL"])
def test_tritonclient_reads_the_same_numbers(dtype):
    values = np.array([[1, 0, 1], [0, 1, 1]]).astype(triton.triton_to_np_dtype(dtype))
    output = InferOutput("p", [2, 3], dtype)
    output.set_data_from_numpy(values, binary_data=True)
    made = InferResponse("1", "m", infer_outputs=[output], use_binary_outputs=True)
    body, length = made.to_rest()
    theirs = triton.InferResult.from_response_body(body, header_length=length).as_numpy("p")
    ours = decode(body, length).tensors["p"]
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


async def posted(tmp_path: Path, *messages: Any) -> tuple[list[dict], Batch]:
    registry = FakeRegistry()
    inbox = FakeInbox(registry)
    app = create_app(Settings(data_dir=tmp_path, log_requests=False), Connection(inbox, registry))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        settings = {"classes": 3, "cloudevents": {"scores": "probabilities", "output": "p"}}
        assert (await client.put("/v1/models/ml.iris", json=settings)).status_code == 201
        found = []
        for headers, body in messages:
            answer = await client.post("/v1/cloudevents", content=body, headers=dict(headers))
            assert answer.status_code == 200, answer.text
            found.append(answer.json())
    (delivery,) = inbox.deliveries
    return found, Batch.unpack(delivery.payload)


@pytest.mark.parametrize("write", [to_binary, to_structured])
@pytest.mark.parametrize("is_binary", [False, True])
def test_events_of_the_first_cloudevents_sdk_hold_bodies_of_kserve(tmp_path, write, is_binary):
    """KServe requires version 1 of the SDK; version 2 has tests of its own."""
    body, _ = response(is_binary)
    attributes = {
        "id": "5f0c",
        "source": "http://localhost:9081/",
        "type": "org.kubeflow.serving.inference.response",
        "time": datetime(2026, 11, 20, 9, tzinfo=UTC).isoformat(),
        "namespace": "ml",
        "inferenceservicename": "iris",
        "component": "predictor",
        "endpoint": "default",
    }
    message = write(CloudEvent(attributes, body), data_marshaller=lambda data: data)
    found, batch = asyncio.run(posted(tmp_path, message, message))
    assert [each["batch"]["duplicate"] for each in found] == [False, True]
    np.testing.assert_allclose(batch.probabilities, ROWS, atol=1e-7)
    assert list(batch.ids) == ["5f0c:0", "5f0c:1"]


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.open_inference")
    assert capsys.readouterr().out
