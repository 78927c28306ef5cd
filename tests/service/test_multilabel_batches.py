"""Batches of multi-label models: what is stored of a row in each form of a body, and what is rejected."""

import io

import orjson
import pyarrow as pa
import pytest
from pyarrow import ipc

from calibrant.core.batch import Batch
from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON
from calibrant_server.service.ingest.columns import MIN_KERNEL_BYTES
from calibrant_server.workers.ingest.payloads import unpack_labels
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
MODEL = "/v1/models/tags"
URL, LABELS = f"{MODEL}/predictions", f"{MODEL}/labels"
P, Y = [[0.7, 0.2, 0.4], [0.1, 0.8, 0.6]], [[1, 0, None], [0, 1.0, True]]
ROWS = {"probabilities": P, "labels": Y, "ids": ["a", 7]}


@pytest.fixture(autouse=True)
async def _declared(client):
    settings = {"task": "multilabel", "classes": ["car", "dog", "sky"], "slices": {"site": None}}
    response = await client.put(MODEL, json=settings)
    assert response.status_code == 201, response.text


def stored(inbox) -> Batch:
    return Batch.unpack(inbox.deliveries[-1].payload)


def check(batch: Batch) -> None:
    assert batch.probabilities[:, 1].tolist() == [0.7, 0.2, 0.4, 0.1, 0.8, 0.6]
    assert batch.label_counts.tolist() == [[0, 1], [1, 0], [0, 0], [1, 0], [0, 1], [0, 1]]
    assert batch.ids.tolist() == ["a/0", "a/1", "a/2", "7/0", "7/1", "7/2"]
    assert batch.units.tolist() == ["a"] * 3 + ["7"] * 3
    assert batch.slices["label"].tolist() == ["car", "dog", "sky"] * 2


async def test_a_label_of_a_row_is_a_prediction(client, inbox):
    response = await client.post(URL, json=ROWS | {"slices": {"site": ["A", "B"]}})
    assert (response.status_code, response.json()["accepted"]) == (202, 6), response.text
    check(stored(inbox))
    assert stored(inbox).slices["site"].tolist() == ["A"] * 3 + ["B"] * 3


async def test_rows_without_ids_have_one_name_in_every_form_of_a_body(client, inbox):
    """A short body is read as lists, a long one as arrays: a repeat of one as the other is still a repeat."""
    rows = {"probabilities": [[0, 1, 0.25], [0.1, 0.8, 0.6]], "labels": [[1, 0, 1], [0, 1, 1]]}
    text = orjson.dumps(rows)
    assert len(text) < MIN_KERNEL_BYTES
    for body in (text, text + b" " * MIN_KERNEL_BYTES):
        response = await client.post(URL, content=body, headers={"Content-Type": JSON})
        assert response.status_code == 202, response.text
    first, second = inbox.deliveries[-2:]
    assert Batch.unpack(first.payload).units.tolist() == Batch.unpack(second.payload).units.tolist()
    assert first.digest == second.digest


async def test_records_lines_and_arrow_are_the_same_batch(client, inbox):
    records = [dict(zip(("probabilities", "labels", "id"), each, strict=True)) for each in zip(*ROWS.values(), strict=True)]  # fmt: skip
    await client.post(URL, json={"predictions": records, "task": "multilabel"})
    check(stored(inbox))
    lines = b"\n".join(map(orjson.dumps, [{"task": "multilabel"}, *records]))
    response = await client.post(URL, content=lines, headers={"Content-Type": NDJSON})
    assert response.status_code == 202, response.text
    check(stored(inbox))
    table = pa.table({"probabilities": P, "labels": [[1, 0, None], [0, 1, 1]], "ids": ["a", "7"]})
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    query = {"task": "multilabel"}
    response = await client.post(
        URL, content=sink.getvalue(), headers={"Content-Type": ARROW}, params=query
    )
    assert response.status_code == 202, response.text
    check(stored(inbox))


async def test_a_first_batch_makes_the_model_of_its_task(client, registry, inbox):
    other = "/v1/models/made"
    body = {"logits": [[1.0, -1.0], [0.5, 2.0]], "labels": [[1, 0], [None, 1]], "task": "multilabel"}  # fmt: skip
    response = await client.post(f"{other}/predictions", json=body)
    assert response.status_code == 202, response.text
    shown = (await client.get(other)).json()
    assert (shown["task"], shown["classes"]) == ("multilabel", ["0", "1"])
    batch = stored(inbox)
    assert len(set(batch.units.tolist())) == 2 and batch.n == 4
    again = await client.post(f"{other}/predictions", json=body)
    assert again.status_code == 202 and stored(inbox).digest() == batch.digest()


async def test_labels_by_id_leave_out_what_is_null(client, inbox):
    body = {"ids": ["a", 7], "labels": [[1, None, 0], [None, None, 1]], "raters": ["ann", "bob"]}
    response = await client.post(LABELS, json=body)
    assert (response.status_code, response.json()["accepted"]) == (202, 3), response.text
    assert unpack_labels(inbox.deliveries[-1].payload) == [
        ["a/0", [], [["ann", 1, None]]],
        ["a/2", [], [["ann", 0, None]]],
        ["7/2", [], [["bob", 1, None]]],
    ]


async def test_a_deletion_is_of_all_labels(client, inbox):
    assert (await client.delete(f"{URL}/a")).status_code == 202
    assert orjson.loads(inbox.deliveries[-1].payload) == {"ids": ["a/0", "a/1", "a/2"]}


@pytest.mark.parametrize(
    ("change", "pointer", "rule", "text"),
    [
        ({"probabilities": [[0.7, 0.2, 0.4], [0.1, 0.8]]}, "/probabilities/1", "shape", "Received 2 values; expected 3"),
        ({"probabilities": [[0.7, 0.2, 0.4], [0.1, 1.8, 0.6]]}, "/probabilities/1/1", "range", "Label 'dog': "),
        ({"probabilities": [0.7, 0.2]}, "/probabilities/0", "shape", "Received no list of values; expected 3"),
        ({"probabilities": None, "confidences": [0.7, 0.2]}, "/confidences", "not_taken", "probabilities or logits (n, labels)"),
        ({"probabilities": None}, "/probabilities", "missing", "Received no probabilities"),
        ({"labels": [[1, 0, None], [0, 2, 1]]}, "/labels/1/1", "class_range", "Label 'dog': "),
        ({"labels": [[1, 0, None], [0, "yes", 1]]}, "/labels/1/1", "class_index", "Label 'dog': "),
        ({"labels": [[1, 0, None], [0, [1, 1], 1]]}, "/labels/1/1", "label", "expected 0, 1 or null"),
        ({"labels": [[1, 0, None]]}, "/labels", "length", "Received 1 rows of labels; expected 2"),
        ({"labels": [1, 0]}, "/labels/0", "shape", "Received no list of values; expected 3"),
        ({"labels": None, "label_counts": [[1, 0, 0]] * 2}, "/label_counts", "not_taken", "Received label_counts"),
        ({"labels": [[1, 0, 1], None], "ids": None}, "/labels/1/0", "labels_required", "Received no label"),
        ({"ids": ["a", None]}, "/ids/1", "name", "expected"),
        ({"ids": ["a"]}, "/ids", "length", "Received 1 values of ids; expected a list of 2"),
        ({"units": ["u"]}, "/units", "length", "Received 1 values of units"),
        ({"event_times": ["2026-11-20T09:00:00Z", "yesterday"]}, "/event_times/1", "rfc3339", "invalid event time"),
        ({"normalize": True}, "/normalize", "not_taken", "Remove normalize"),
        ({"slices": {"label": ["car", "dog"]}}, "/slices/label", "reserved", "Use another name"),
        ({"slices": {"ward": ["1", "2"]}}, "/slices/ward", "undeclared_slice", "expected one of"),
        ({"task": "binary"}, "/task", "task", "expected multilabel"),
    ],
)  # fmt: skip
async def test_errors_name_row_and_label(client, inbox, change, pointer, rule, text):
    body = {name: each for name, each in (ROWS | change).items() if each is not None}
    found = problem(await client.post(URL, json=body), 422, "invalid-input")["errors"]
    assert (found[0]["pointer"], found[0]["rule"]) == (pointer, rule), found
    assert text in found[0]["detail"], found
    assert not inbox.deliveries


async def test_a_part_of_the_labels_is_accepted_on_request(client, inbox):
    body = ROWS | {"probabilities": [[0.7, 0.2, 0.4], [0.1, 1.8, 0.6]]}
    response = await client.post(URL, json=body, params={"partial": "true"})
    assert (response.status_code, response.json()["accepted"]) == (202, 5), response.text
    assert [each["pointer"] for each in response.json()["errors"]] == ["/probabilities/1/1"]
    assert stored(inbox).ids.tolist() == ["a/0", "a/1", "a/2", "7/0", "7/2"]


async def test_errors_of_lines_name_the_line(client):
    lines = b'{"probability":[0.5,0.5,0.5],"label":[1,0,1]}\n{"probability":[0.5,2,0.5],"label":[1,0,1]}'
    response = await client.post(URL, content=lines, headers={"Content-Type": NDJSON})
    [error] = problem(response, 422, "invalid-input")["errors"]
    assert error["pointer"] == "/2/probability/1"
    lines = b'{"id":"a","label":[1,0,1]}\n{"id":"b","label":[1,0,7]}'
    response = await client.post(LABELS, content=lines, headers={"Content-Type": NDJSON})
    [error] = problem(response, 422, "invalid-input")["errors"]
    assert error["pointer"] == "/2/label" and "Label 'sky'" in error["detail"]


@pytest.mark.parametrize(
    ("labels", "pointer", "rule"),
    [
        ([[1, 0, 2], [1, 0, 0]], "/labels/0/2", "class_range"),
        ([[1, 0], [1, 0, 0]], "/labels/0", "shape"),
        ([[None] * 3, [None] * 3], "/labels", "empty_ratings"),
        ([[1, 0, 0]], "/labels", "length"),
        ([1, 0], "/labels/0", "shape"),
    ],
)
async def test_errors_of_labels_by_id(client, labels, pointer, rule):
    response = await client.post(LABELS, json={"ids": ["a", "b"], "labels": labels})
    [error] = problem(response, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == (pointer, rule), error


async def test_bounds_hold_before_work(client, settings):
    n = settings.max_rows // 3 + 1
    body = {"probabilities": [[0.5] * 3] * n, "labels": [[1, 0, 1]] * n}
    found = problem(await client.post(URL, json=body), 413, "body-too-large")
    assert f"Received {n} rows of 3 labels, together {3 * n}" in found["detail"]
    wide = {"probabilities": [[0.5] * 101], "labels": [[1] * 101], "task": "multilabel"}
    [error] = problem(await client.post("/v1/models/x/predictions", json=wide), 422, "invalid-input")["errors"]  # fmt: skip
    assert error["detail"].startswith("Received 101 labels; expected")
    for more in ({"classes": 101}, {"classes": 10**9}, {"slices": {"label": None}}, {"listed_classes": [0]}):  # fmt: skip
        response = await client.put("/v1/models/x", json={"task": "multilabel", "classes": ["a"]} | more)  # fmt: skip
        assert problem(response, 422, "invalid-input")["errors"][0]["rule"] == "labels"


async def test_a_model_of_another_task_takes_no_multilabel_rows(client):
    await client.post("/v1/models/digits/predictions", json=PREDICTIONS)
    body = PREDICTIONS | {"task": "multilabel"}
    response = await client.post("/v1/models/digits/predictions", json=body)
    [error] = problem(response, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/task", "task")
    assert "the model is multiclass" in error["detail"]


async def test_labels_of_a_model_are_fixed(client):
    current = await client.get(MODEL)
    body = {"task": "multilabel", "classes": ["car", "dog"]}
    response = await client.put(MODEL, json=body, headers={"If-Match": current.headers["etag"]})
    found = problem(response, 409, "model-conflict")["errors"]
    assert found[0]["pointer"] == "/classes"


async def test_an_update_names_its_label(client):
    histogram = {
        "kind": "positive", "bins": 3600, "count": [0.0] * 3600, "sum_confidence": [0.0] * 3600,
        "sum_correct": [0.0] * 3600,
    }  # fmt: skip
    response = await client.post(f"{MODEL}/histograms", json=histogram)
    [error] = problem(response, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/slice/label", "label_required")
    response = await client.post(f"{MODEL}/histograms", json=histogram | {"slice": {"label": "car"}})  # fmt: skip
    assert response.status_code == 202, response.text
