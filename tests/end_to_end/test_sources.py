"""Batches of numbered messages: each message counts once, however often and in whatever batches it is sent."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

import calibrant as cal

HEADERS = {"Prefer": "wait=60"}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(3), n), rng.integers(0, 3, n)


def body(first, end, source="orders-0", **more):
    probabilities, labels = rows(100)
    return {
        "probabilities": probabilities[first:end].tolist(),
        "labels": labels[first:end].tolist(),
        "source": source,
        "offsets": [first, end],
    } | more


def send(deployment, model, document, path="predictions", **options):
    return deployment.client.post(
        f"/v1/models/{model}/{path}", json=document, headers=HEADERS, **options
    )


def n_of(deployment, model):
    return deployment.get(f"/v1/models/{model}/metrics", metrics="ece")["n_predictions"]


def test_each_message_counts_once(embedded):
    model = "numbered"
    # A first batch may start anywhere.
    assert send(embedded, model, body(10, 30)).json()["status"] == "merged"
    assert send(embedded, model, body(30, 40, batch_id="b1")).json()["duplicate"] is False
    # Again, by another batch id, in other pieces, without an id, and with other content: known by its numbers.
    for first, end in ((10, 30), (30, 40), (10, 20), (25, 35)):
        again = send(embedded, model, body(first, end) | {"labels": [0] * (end - first)})
        assert again.status_code == 200, again.text
        found = again.json()
        assert (found["duplicate"], found["status"]) == (True, "accepted")
        assert "location" not in again.headers
    assert n_of(embedded, model) == 30
    expected = cal.evaluate(*(each[10:40] for each in rows(100)), ["ece"])["ece"]
    value = embedded.get(f"/v1/models/{model}/metrics", metrics="ece")["metrics"]["ece"]["value"]
    assert value == pytest.approx(float(expected), rel=1e-12)
    # The same batch id is known by its record first.
    assert send(embedded, model, body(30, 40, batch_id="b1")).json()["status"] == "merged"


def test_a_watermark_can_be_read(embedded):
    source = "/v1/models/read-mark/sources/orders-0"
    assert embedded.client.get(source).status_code == 404
    send(embedded, "read-mark", body(0, 20, source="another"))
    assert embedded.get(source) == {"source": "orders-0", "watermark": None}
    send(embedded, "read-mark", body(10, 20))
    assert embedded.get(source) == {"source": "orders-0", "watermark": 20}
    send(embedded, "read-mark", body(12, 20))
    send(embedded, "read-mark", body(25, 30))
    assert embedded.get(source)["watermark"] == 20
    assert send(embedded, "read-mark", body(20, 31) | {"labels": [9] * 11}).status_code == 422
    assert embedded.get(source)["watermark"] == 20
    with cal.Client(f"http://127.0.0.1:{embedded.port}") as client:
        assert client.model("read-mark").watermark("orders-0") == 20
        assert client.model("read-mark").watermark("orders-1") is None


@pytest.mark.parametrize(
    ("first", "end", "rule"), [(15, 25, "offset_overlap"), (21, 30, "offset_gap")]
)
def test_what_does_not_follow_is_rejected(embedded, first, end, rule):
    model = f"follows-{rule}"
    send(embedded, model, body(0, 20))
    rejected = send(embedded, model, body(first, end))
    assert rejected.status_code == 409
    problem = rejected.json()
    assert problem["type"].endswith("offset-conflict") and problem["watermark"] == 20
    assert problem["errors"][0]["rule"] == rule and problem["errors"][0]["pointer"] == "/offsets"
    assert n_of(embedded, model) == 20
    # Another source has offsets of its own.
    assert send(embedded, model, body(first, end, source="orders-1")).status_code == 200
    assert send(embedded, model, body(20, 25)).status_code == 200
    assert n_of(embedded, model) == 20 + (end - first) + 5


def test_every_form_of_body_states_its_offsets(embedded):
    model = "forms"
    probabilities, labels = rows(100)
    url = f"/v1/models/{model}/predictions"
    records = [
        {"probabilities": row.tolist(), "label": int(label)}
        for row, label in zip(probabilities, labels, strict=True)
    ]
    in_json = {"predictions": records[:10], "source": "s", "offsets": [0, 10]}
    head = {"source": "s", "offsets": [10, 20]}
    lines = "\n".join(json.dumps(each) for each in (head, *records[10:20]))
    table = pa.table(
        {
            "probabilities": pa.FixedSizeListArray.from_arrays(probabilities[20:30].ravel(), 3),
            "labels": labels[20:30],
        }
    )
    stream = io.BytesIO()
    with ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    arrow = {"content-type": "application/vnd.apache.arrow.stream"}
    pane = cal.Pane.fill(probabilities[30:40], labels[30:40]).to_bytes()
    packed = {"kind": "pane", "packed": base64.b64encode(pane).decode()}
    raw = {"content-type": "application/x-calibrant-pane"}
    histograms = f"/v1/models/{model}/histograms"
    requests = [
        (url, {"json": in_json}, {}),
        (url, {"content": lines}, {"content-type": "application/x-ndjson"}),
        (f"{url}?source=s&offsets=20,30", {"content": stream.getvalue()}, arrow),
        (histograms, {"json": packed | {"source": "s", "offsets": [30, 40]}}, {}),
        (histograms, {"json": {"histograms": [packed], "source": "s", "offsets": [40, 50]}}, {}),
        (f"{histograms}?source=s&offsets=50,60", {"content": pane}, raw),
    ]
    for n_done, (path, content, headers) in enumerate(requests, 1):
        for is_duplicate in (False, True):
            found = embedded.client.post(path, **content, headers=headers | HEADERS)
            assert found.status_code == 200, found.text
            assert found.json()["duplicate"] is is_duplicate
        assert n_of(embedded, model) == 10 * n_done


@pytest.mark.parametrize(("more", "pointer", "rule"), [
    ({"offsets": [3, 3]}, "/offsets", "range"), ({"offsets": [-1, 3]}, "/offsets", "range"),
    ({"offsets": [0, 2**53]}, "/offsets", "range"), ({"offsets": [0.0, 10]}, "/offsets", "range"),
    ({"offsets": "0,10"}, "/offsets", "range"), ({"offsets": None}, "/offsets", "required"),
    ({"source": None}, "/source", "required"), ({"source": "a b"}, "/source", "id"), ({"source": 7}, "/source", "id"),
])  # fmt: skip
def test_what_is_wrong_is_named(embedded, more, pointer, rule):
    rejected = send(embedded, "wrong", body(0, 10) | more)
    assert rejected.status_code == 422
    assert [(each["pointer"], each["rule"]) for each in rejected.json()["errors"]] == [
        (pointer, rule)
    ]


def test_query_and_body_agree(embedded):
    sent = body(0, 10)
    rejected = send(embedded, "agree", sent, params={"source": "orders-0", "offsets": "0,11"})
    assert rejected.status_code == 422 and rejected.json()["errors"][0]["rule"] == "agreement"
    assert (
        send(embedded, "agree", sent, params={"source": "orders-0", "offsets": "0,10"}).status_code
        == 200
    )
    rejected = send(
        embedded, "agree", {"kind": "pane", "packed": ""}, "histograms", params={"source": "s"}
    )
    assert rejected.json()["errors"][0]["rule"] == "pane_only"


def test_a_deleted_model_forgets_and_an_imported_one_remembers(embedded):
    model = "moved-sources"
    send(embedded, model, body(0, 20))
    exported = embedded.client.get(f"/v1/models/{model}/export")
    assert exported.status_code == 200, exported.text
    assert embedded.client.delete(f"/v1/models/{model}").status_code in (200, 202, 204)
    assert send(embedded, model, body(5, 10)).json()["duplicate"] is False
    imported = embedded.client.post(
        "/v1/models/moved-again/import",
        content=exported.content,
        headers={"content-type": exported.headers["content-type"]} | HEADERS,
    )
    assert imported.status_code in (200, 201, 202), imported.text
    assert send(embedded, "moved-again", body(0, 20)).json()["duplicate"] is True
    assert send(embedded, "moved-again", body(25, 30)).json()["watermark"] == 20
