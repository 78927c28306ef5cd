"""Labels by id: which bodies are taken, what a row's faults are called, and predictions taken out."""

import pytest

from calibrant_server.workers.ingest.payloads import unpack_labels
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/labels"


@pytest.fixture
async def known(client):
    await client.post("/v1/models/digits/predictions", json=PREDICTIONS)
    return client


async def test_labels_are_handed_over_by_id(known, inbox):
    body = {
        "batch_id": "l1",
        "ids": ["i1", "i2", "i3"],
        "labels": [[2, 2], [1, 0], [None]],
        "raters": [["r1", "r2"], None, ["r9"]],
        "revision": [[0, 3], None, 4],
    }
    answer = await known.post(URL, json=body)
    assert answer.status_code == 202
    assert answer.json()["accepted"] == 3
    rows = unpack_labels(inbox.deliveries[-1].payload)
    assert rows == [
        ["i1", [], [["r1", 2, 0], ["r2", 2, 3]]],
        ["i2", [[0, 1], [1, 1]], []],
        ["i3", [], [["r9", -1, 4]]],
    ]


async def test_lines_say_the_same_in_the_singular(known, inbox):
    lines = b'{"batch_id": "l2"}\n{"id": "i1", "label": 2, "rater": "r1"}\n{"id": "i2", "label": [1, 1]}\n'
    answer = await known.post(URL, content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 202, answer.text
    rows = unpack_labels(inbox.deliveries[-1].payload)
    assert rows == [["i1", [], [["r1", 2, None]]], ["i2", [[1, 2]], []]]


@pytest.mark.parametrize(
    ("body", "pointer", "rule"),
    [
        ({"ids": ["i1"]}, "/labels", "missing"),
        ({"labels": [0]}, "/ids", "missing"),
        ({"ids": [], "labels": []}, "/ids", "empty"),
        ({"ids": ["i1", "i2"], "labels": [0]}, "/labels", "length"),
        ({"ids": ["a\tb"], "labels": [0]}, "/ids/0", "name"),
        ({"ids": ["i1"], "labels": [3]}, "/labels/0", "class_range"),
        ({"ids": ["i1"], "labels": [True]}, "/labels/0", "class_index"),
        ({"ids": ["i1"], "labels": [None]}, "/labels/0", "rater_required"),
        ({"ids": ["i1"], "labels": [[]]}, "/labels/0", "empty_ratings"),
        ({"ids": ["i1"], "labels": [[0, 1]], "raters": ["r1"]}, "/raters/0", "length"),
        (
            {"ids": ["i1"], "labels": [[0, 1]], "raters": [["r1", "r1"]]},
            "/raters/0",
            "repeated_rater",
        ),
        (
            {"ids": ["i1"], "labels": [[0] * 1001], "raters": [[f"r{i}" for i in range(1001)]]},
            "/raters/0",
            "too_many_raters",
        ),
        (
            {"ids": ["i1"], "labels": [0], "raters": ["r1"], "revision": [-1]},
            "/revision/0",
            "integer",
        ),
        ({"ids": ["i1"], "labels": [0], "revision": [2]}, "/revision/0", "rater_required"),
        ({"ids": ["i1"], "labels": [0], "notes": ["x"]}, "/notes", "unknown_field"),
        ({"ids": "i1", "labels": [0]}, "/ids", "list"),
    ],
)
async def test_faults_name_field_row_and_rule(known, inbox, body, pointer, rule):
    before = len(inbox.deliveries)
    found = problem(await known.post(URL, json=body), 422, "invalid-input")
    assert (found["errors"][0]["pointer"], found["errors"][0]["rule"]) == (pointer, rule)
    assert len(inbox.deliveries) == before


async def test_partial_keeps_the_good_rows(known, inbox):
    body = {"ids": ["i1", "i2"], "labels": [0, 7]}
    answer = (await known.post(URL, params={"partial": "true"}, json=body)).json()
    assert (answer["accepted"], answer["rejected"]) == (1, 1)
    assert answer["errors"][0]["pointer"] == "/labels/1"


async def test_labels_alone_make_no_model(client):
    problem(await client.post(URL, json={"ids": ["i1"], "labels": [0]}), 404, "model-unknown")


async def test_predictions_with_ids_may_come_without_labels(client, inbox):
    body = {"probabilities": [[0.2, 0.8]], "ids": ["i1"]}
    answer = await client.post("/v1/models/digits/predictions", json=body)
    assert answer.status_code == 202
    assert inbox.deliveries[-1].n_records == 1


async def test_a_prediction_is_taken_out(known, inbox):
    answer = await known.delete("/v1/models/digits/predictions/i1")
    assert answer.status_code == 202
    assert (inbox.deliveries[-1].kind, inbox.deliveries[-1].payload) == (
        "removal",
        b'{"ids":["i1"]}',
    )
    problem(await known.delete(f"/v1/models/digits/predictions/{'x' * 257}"), 422, "invalid-name")


async def test_a_mistyped_model_or_field_is_told_with_the_nearest_name(client):
    await client.put("/v1/models/triage", json={"classes": 3})
    body = {"ids": ["a"], "labels": [[1]]}
    rejected = await client.post("/v1/models/trigae/labels", json=body)
    detail = problem(rejected, 404, "model-unknown")["detail"]
    assert "'trigae'" in detail and "nearest name is triage." in detail
    assert "Labels alone cannot create a model." in detail
    for path, sent, near in (
        ("triage/labels", body | {"rater": [["a"]]}, "raters"),
        ("triage/predictions", {"confidence": [0.5], "labels": [1]}, "confidences"),
    ):
        [error] = (await client.post(f"/v1/models/{path}", json=sent)).json()["errors"]
        assert error["detail"].endswith(f" The nearest name is {near}."), error
    for sent, near in (
        ({"label_horizn": "P7D"}, "label_horizon"),
        ({"alarm": {"tolerence": 0.1}}, "tolerance"),
    ):
        rejected = await client.patch("/v1/models/triage", json=sent, headers={"If-Match": "*"})
        [error] = rejected.json()["errors"]
        assert error["detail"].endswith(f" The nearest name is {near}."), error
