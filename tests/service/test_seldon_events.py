"""Events of Seldon's request logger, as its sources document them: predictions, and feedback as labels."""

import json

import numpy as np
import pytest

from calibrant.core.batch import Batch
from calibrant_server.workers.ingest.payloads import unpack_labels
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio

ROWS = [[0.7, 0.3], [0.2, 0.8]]
SELDON = {"scores": "probabilities", "ids": "event:requestid"}


def headers(kind: str) -> dict[str, str]:
    """Those of `executor/logger/worker.go`."""
    return {
        "ce-specversion": "1.0",
        "ce-id": "5f0c",
        "ce-source": "http://:8000/",
        "ce-type": f"io.seldon.serving.{kind}",
        "ce-time": "2026-11-20T09:00:00Z",
        "ce-modelid": "classifier",
        "ce-requestid": "r1",
        "ce-inferenceservicename": "iris",
        "ce-namespace": "ml",
        "ce-endpoint": "default",
        "content-type": "application/json",
    }


async def post(client, kind: str, body) -> dict:
    response = await client.post("/v1/cloudevents", content=json.dumps(body), headers=headers(kind))
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture
async def declared(client):
    settings = {"task": "binary", "classes": 2, "cloudevents": SELDON}
    response = await client.put("/v1/models/ml.iris", json=settings)
    assert response.status_code == 201, response.text


BODIES = {
    "ndarray": {"meta": {"puid": "r1"}, "data": {"names": ["a", "b"], "ndarray": ROWS}},
    "tensor": {"data": {"tensor": {"shape": [2, 2], "values": [0.7, 0.3, 0.2, 0.8]}}},
    "v2": {
        "outputs": [
            {"name": "p", "datatype": "FP32", "shape": [2, 2], "data": [0.7, 0.3, 0.2, 0.8]}
        ]
    },
}


@pytest.mark.parametrize("form", BODIES)
async def test_a_response_becomes_predictions(client, inbox, declared, form):
    found = await post(client, "inference.response", BODIES[form])
    assert found["outcome"] == "accepted" and found["batch"]["accepted"] == 2
    (delivery,) = inbox.deliveries
    batch = Batch.unpack(delivery.payload)
    np.testing.assert_allclose(batch.probabilities, ROWS, atol=1e-7)
    assert list(batch.ids) == ["r1:0", "r1:1"]


@pytest.mark.parametrize(
    "truth",
    [
        {"ndarray": [0, 1]},
        {"ndarray": [[0], [1]]},
        {"tensor": {"shape": [2, 2], "values": [1.0, 0.0, 0.0, 1.0]}},
    ],
)
async def test_feedback_becomes_labels_of_the_request(client, inbox, declared, truth):
    await post(client, "inference.response", BODIES["ndarray"])
    feedback = {"response": BODIES["ndarray"], "reward": 1, "truth": {"data": truth}}
    first = await post(client, "feedback", feedback)
    again = await post(client, "feedback", feedback)
    assert [each["batch"]["duplicate"] for each in (first, again)] == [False, True]
    predictions, labels = inbox.deliveries
    assert labels.kind == "labels" and labels.batch_id != predictions.batch_id
    rows = unpack_labels(labels.payload)
    assert rows == [["r1:0", [[0, 1]], []], ["r1:1", [[1, 1]], []]]


async def test_a_reward_alone_is_no_label(client, inbox, declared):
    found = await post(client, "feedback", {"response": {"meta": {"puid": "r1"}}, "reward": 1})
    assert found["outcome"] == "skipped" and "no truth" in found["reason"]
    assert not inbox.deliveries


@pytest.mark.parametrize(
    ("truth", "rule"),
    [([[1, 1]], "one_hot"), ([0.5], "integer"), (["a"], "shape"), ([[0.5, 0.5]], "one_hot")],
)
async def test_truth_that_is_no_class_is_refused(client, inbox, declared, truth, rule):
    body = {"truth": {"data": {"ndarray": truth}}}
    response = await client.post(
        "/v1/cloudevents", content=json.dumps(body), headers=headers("feedback")
    )
    assert problem(response, 422, "invalid-input")["errors"][0]["rule"] == rule
    assert not inbox.deliveries
