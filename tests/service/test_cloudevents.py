"""CloudEvents of inference servers: what becomes of each, as loggers and brokers deliver them."""

import base64
import gzip
import json

import numpy as np
import pytest

from calibrant.core.batch import Batch
from calibrant.input.names import fitted
from calibrant_server.service.routes import cloudevents
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio

URL = "/v1/cloudevents"
TYPE = "org.kubeflow.serving.inference.{}"
ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]
PATIENT = {"X-Patient": ["p4"]}


def headers(kind: str = "response", **other: str) -> dict[str, str]:
    """Those of KServe's logger; the content type is the one of the request."""
    return {
        "ce-specversion": "1.0",
        "ce-id": "5f0c",
        "ce-source": "http://localhost:9081/",
        "ce-type": TYPE.format(kind),
        "ce-time": "2026-11-20T09:00:00.123456789Z",
        "ce-inferenceservicename": "iris",
        "ce-namespace": "ml",
        "ce-component": "predictor",
        "ce-endpoint": "default",
        "ce-metadata": json.dumps(PATIENT),
        "content-type": "application/octet-stream",
    } | {f"ce-{name}": value for name, value in other.items()}


@pytest.fixture
def declare(client):
    async def put(model="ml.iris", task="multiclass", classes=3, **mapping):
        settings = {"task": task, "classes": classes}
        if mapping:
            settings["cloudevents"] = {"scores": "probabilities", **mapping}
        response = await client.put(f"/v1/models/{model}", json=settings)
        assert response.status_code == 201, response.text
        return response.json()

    return put


def batch(inbox) -> Batch:
    """The only batch that was appended, unpacked."""
    (delivery,) = inbox.deliveries
    return Batch.unpack(delivery.payload)


async def accepted(client, body: bytes, sent: dict[str, str]) -> dict:
    response = await client.post(URL, content=body, headers=sent)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["outcome"] == "accepted"
    return found["batch"]


async def test_a_binary_event_becomes_predictions_of_its_service(client, inbox, declare):
    await declare(units="header:x-patient", slices={"endpoint": "event:endpoint"})
    receipt = await accepted(client, json.dumps({"predictions": ROWS}).encode(), headers())
    assert (receipt["model"], receipt["accepted"]) == ("ml.iris", 2)
    found = batch(inbox)
    np.testing.assert_allclose(found.probabilities, ROWS)
    assert list(found.ids) == ["5f0c:0", "5f0c:1"]
    assert list(found.slices["endpoint"]) == ["default", "default"]
    assert found.unit_source == "unit"
    assert set(found.event_times.tolist()) == {1795165200123456}


async def test_a_repeated_event_counts_once_and_another_source_is_another_event(
    client, inbox, declare
):
    await declare(units="header:X-Patient")
    body = json.dumps({"predictions": ROWS}).encode()
    first = await accepted(client, body, headers())
    again = await accepted(client, body, headers())
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["batch_id"] == again["batch_id"]
    other = await accepted(client, body, headers(source="http://other/"))
    assert other["batch_id"] != first["batch_id"] and len(inbox.deliveries) == 2


V2 = {"id": "r1", "outputs": [{"name": "p", "datatype": "FP32", "shape": [2, 3], "data": ROWS}]}
RAW = np.array(ROWS, "<f4").tobytes()
TRITON = json.dumps(
    {
        "model_name": "m",
        "outputs": [
            {
                "name": "p",
                "datatype": "FP32",
                "shape": [2, 3],
                "parameters": {"binary_data_size": len(RAW)},
            }
        ],
    }
).encode()


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"predictions": ROWS}).encode(),
        json.dumps({"predictions": [{"p": each} for each in ROWS]}).encode(),
        json.dumps(V2).encode(),
        TRITON + RAW,
        gzip.compress(json.dumps(V2).encode()),
        gzip.compress(TRITON + RAW),
    ],
    ids=["v1", "v1-members", "v2", "triton", "gzip", "gzip-triton"],
)
@pytest.mark.parametrize("is_structured", [False, True])
async def test_every_form_of_body_gives_the_same_scores(
    client, inbox, declare, body, is_structured
):
    await declare(output=None)
    sent = headers()
    if is_structured:
        event = {name.removeprefix("ce-"): text for name, text in sent.items() if "ce-" in name}
        event["data_base64"] = base64.b64encode(body).decode()
        body = json.dumps(event).encode()
        sent = {"content-type": "application/cloudevents+json; charset=utf-8"}
    await accepted(client, body, sent)
    np.testing.assert_allclose(batch(inbox).probabilities, ROWS, atol=1e-7)


async def test_structured_data_may_be_json(client, inbox, declare):
    await declare(output="p", ids="body:id")
    event = {name[3:]: text for name, text in headers().items() if name.startswith("ce-")}
    sent = {"content-type": "application/cloudevents+json"}
    await accepted(client, json.dumps({**event, "data": V2}).encode(), sent)
    assert list(batch(inbox).ids) == ["r1:0", "r1:1"]


@pytest.mark.parametrize(
    ("scores", "data", "expected"),
    [
        ("logits", [[2.0], [-1.0]], [1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(1.0))]),
        ("logits", [[0.0, 2.0], [1.0, 0.0]], [1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(1.0))]),
        ("confidences", [0.9, 0.2], [0.9, 0.2]),
        ("probabilities", [[0.9], [0.2]], [0.9, 0.2]),
    ],
)
async def test_scores_are_what_the_model_declares(client, inbox, declare, scores, data, expected):
    await declare(task="binary", classes=2, scores=scores)
    await accepted(client, json.dumps({"predictions": data}).encode(), headers())
    np.testing.assert_allclose(batch(inbox).probabilities[:, 1], expected, atol=1e-12)


async def test_requests_other_components_and_other_types_are_skipped(client, inbox, declare):
    await declare(output=None)
    for sent in (
        headers("request"),
        headers(component="transformer"),
        headers(type="dev.knative.sources.ping"),
    ):
        response = await client.post(URL, content=b"not looked at", headers=sent)
        assert response.status_code == 200 and response.json()["outcome"] == "skipped"
        assert response.json()["reason"]
    assert not inbox.deliveries


REQUEST = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [1.0, 2.0]},
        {"name": "patient", "datatype": "BYTES", "shape": [2], "data": ["p4", "p 5"]},
        {"name": "site", "datatype": "INT64", "shape": [2, 1], "data": [1, 2]},
    ]
}


@pytest.mark.parametrize("order", [("request", "response"), ("response", "request")])
async def test_request_and_response_are_joined_in_any_order(client, inbox, declare, order):
    await declare(units="input:patient", slices={"site": "input:site"})
    bodies = {"request": REQUEST, "response": V2}
    outcomes = []
    for kind in (*order, *order):
        sent = headers(kind)
        response = await client.post(URL, content=json.dumps(bodies[kind]).encode(), headers=sent)
        outcomes.append(response.json()["outcome"])
    assert outcomes[:2] == ["waiting", "accepted"] and len(inbox.deliveries) == 1
    assert list(batch(inbox).slices["site"]) == ["1", "2"]
    assert batch(inbox).unit_source == "unit"


async def test_a_full_room_for_halves_is_to_be_tried_again(client, inbox, declare):
    await declare(units="input:patient")
    inbox.event_halves.is_full = True
    response = await client.post(URL, content=json.dumps(V2).encode(), headers=headers())
    assert int(problem(response, 429, "backlog-full") and response.headers["retry-after"]) == 60


async def test_valid_rows_are_accepted_although_others_are_not(client, inbox, declare):
    await declare(output=None)
    body = json.dumps({"predictions": [*ROWS, [0.9, 0.9, 0.9]]}).encode()
    receipt = await accepted(client, body, headers())
    assert (receipt["accepted"], receipt["rejected"]) == (2, 1)
    assert receipt["errors"][0]["pointer"].endswith("/2")


REJECTED = [
    (b"{}", headers(), 422, "invalid-input"),
    (b"\x1f\x8bnot gzip", headers(), 400, "malformed-body"),
    (b"no json", headers(), 422, "invalid-input"),
    (json.dumps({"predictions": [[9, 9, 9]]}).encode(), headers(), 422, "invalid-input"),
    (TRITON + RAW[:-1], headers(), 422, "invalid-input"),
    (TRITON + RAW + b"x", headers(), 422, "invalid-input"),
    (json.dumps({"predictions": [["a"]]}).encode(), headers(), 422, "invalid-input"),
    (b"{}", headers(specversion="0.3"), 422, "invalid-input"),
    (b"{}", headers(id=""), 422, "invalid-input"),
    (b"{}", headers(inferenceservicename="other"), 404, "model-unknown"),
    (b"{}", headers(inferenceservicename="a b"), 422, "invalid-name"),
    (b"{}", {"content-type": "application/json"}, 415, "media-type-unsupported"),
    (b"[]", {"content-type": "application/cloudevents-batch+json"}, 415, "media-type-unsupported"),
    (b"[]", {"content-type": "application/cloudevents+json"}, 422, "invalid-input"),
]


@pytest.mark.parametrize(("body", "sent", "status", "slug"), REJECTED)
async def test_what_cannot_be_stored_is_refused_with_a_reason(
    client, inbox, declare, body, sent, status, slug
):
    await declare(output=None)
    problem(await client.post(URL, content=body, headers=sent), status, slug)
    assert not inbox.deliveries
    metrics = (await client.get("/metrics")).text
    assert 'calibrant_cloudevents_total{outcome="refused"} 1.0' in metrics


async def test_a_model_without_a_declaration_is_refused_with_what_to_declare(client, declare):
    await declare()
    sent = await client.post(URL, content=json.dumps(V2).encode(), headers=headers())
    found = problem(sent, 422, "invalid-input")
    assert "scores" in found["detail"] and found["errors"][0]["rule"] == "undeclared"


async def test_a_declared_value_that_is_missing_is_named(client, declare):
    await declare(units="header:X-Study")
    sent = await client.post(URL, content=json.dumps(V2).encode(), headers=headers())
    found = problem(sent, 422, "invalid-input")
    assert found["errors"][0]["pointer"] == "/cloudevents/header/X-Study"


async def test_a_store_that_does_not_answer_sheds_events_at_once(
    client, inbox, declare, monkeypatch
):
    await declare(output=None)
    inbox.trouble = StoreUnavailableError("gone")
    response = await client.post(URL, content=json.dumps(V2).encode(), headers=headers())
    problem(response, 503, "store-unavailable")
    inbox.trouble = None
    response = await client.post(URL, content=json.dumps(V2).encode(), headers=headers())
    problem(response, 503, "store-unavailable")  # from memory
    metrics = (await client.get("/metrics")).text
    assert 'calibrant_cloudevents_total{outcome="shed"} 2.0' in metrics


async def test_a_slow_store_has_a_deadline(client, inbox, declare, monkeypatch):
    await declare(output=None)
    monkeypatch.setattr(cloudevents, "STORE_DEADLINE_S", 0.01)

    async def never(delivery):
        import asyncio

        await asyncio.Event().wait()

    monkeypatch.setattr(inbox, "enqueue", never)
    response = await client.post(URL, content=json.dumps(V2).encode(), headers=headers())
    problem(response, 503, "store-unavailable")


async def test_the_model_may_be_named_in_the_query(client, inbox, declare):
    await declare(model="mine", output=None)
    response = await client.post(
        f"{URL}?model=mine", content=json.dumps(V2).encode(), headers=headers()
    )
    assert response.json()["batch"]["model"] == "mine"


async def test_the_declaration_is_returned_and_can_be_changed(client, declare):
    made = await declare(units="header:X-Patient")
    assert made["cloudevents"]["units"] == "header:X-Patient"
    patched = await client.patch(
        "/v1/models/ml.iris",
        json={"cloudevents": {"scores": "logits"}},
        headers={"if-match": "*", "content-type": "application/merge-patch+json"},
    )
    assert patched.json()["cloudevents"]["scores"] == "logits"
    wrong = await client.patch(
        "/v1/models/ml.iris",
        json={"cloudevents": {"units": "patient"}},
        headers={"if-match": "*", "content-type": "application/merge-patch+json"},
    )
    assert wrong.status_code == 422


def test_ids_that_do_not_fit_are_hashed_alike():
    assert fitted("p-4") == "p-4"
    assert fitted("p/4") == fitted("p/4") != fitted("p/5")
    assert fitted("x" * 200).startswith("h.") and len(fitted("x" * 200)) == 34
